"""Plots LAMB's trust ratios over a run: one row per tensor and layer, one column per log line.

    bert-lamb pretrain ... --config.logging.trust_ratios=True
    python scripts/plot_trust_ratios.py runs/demo/metrics.jsonl trust_ratios.png

Needs matplotlib (extra [dev]). Tensors that do not adapt are left out.
"""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm


def main() -> None:
    """Reads metrics.jsonl and writes a heat map."""
    source, target = map(Path, sys.argv[1:])
    records = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    records = [record for record in records if record["kind"] == "trust_ratio"]
    if not records:
        sys.exit(f"{source}: no trust ratios; run with --config.logging.trust_ratios=True")
    steps = [record["step"] for record in records]
    rows: dict[str, list[float]] = {}
    for name in (key for key in records[0] if key not in ("kind", "step")):
        for layer, values in enumerate(zip(*(record[name] for record in records), strict=True)):
            if any(value != 1 for value in values):
                many = len(records[0][name]) > 1
                rows[f"{name} {layer}" if many else name] = list(values)
    ratios = np.maximum(np.array(list(rows.values())), 1e-8)
    figure, axis = plt.subplots(figsize=(11, 1.5 + 0.16 * len(rows)), layout="constrained")
    image = axis.imshow(ratios, aspect="auto", interpolation="nearest", norm=LogNorm())
    axis.set_yticks(range(len(rows)), list(rows), fontsize=6)
    shown = np.linspace(0, len(steps) - 1, min(len(steps), 9)).astype(int)
    axis.set_xticks(shown, [steps[i] for i in shown])
    axis.set_xlabel("optimizer updates")
    figure.colorbar(image, label="trust ratio")
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main()
