"""Plots the loss, accuracy and learning rate of a run.

    python scripts/plot_metrics.py runs/demo/metrics.jsonl losses.png

Needs matplotlib (extra [dev]).
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = (
    ("mlm_loss", "masked-token loss (nats)"),
    ("mlm_accuracy", "masked-token accuracy"),
    ("nsp_accuracy", "next-sentence accuracy"),
    ("learning_rate", "learning rate"),
)


def main() -> None:
    """Reads metrics.jsonl and writes a picture of four panels."""
    source, target = map(Path, sys.argv[1:])
    records = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    boundaries = [record["step"] for record in records if record["kind"] == "phase"][:-1]
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    for axis, (name, title) in zip(axes.flat, PANELS, strict=True):
        for kind, style in (("train", "-"), ("eval", "o--")):
            points = [(r["step"], r[name]) for r in records if r["kind"] == kind and name in r]
            if points:
                label = {"train": "training window", "eval": "held out"}[kind]
                axis.plot(*zip(*points, strict=True), style, label=label, markersize=4, linewidth=1)
        for step in boundaries:
            axis.axvline(step, color="gray", linewidth=0.8, linestyle=":")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    for axis in axes[1]:
        axis.set_xlabel("optimizer updates")
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main()
