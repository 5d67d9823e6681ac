"""Makes table.md and accuracy.png of a batch-size study's results.json.

    python scripts/batch_size_report.py docs/results/batch_size_study

Learning rates are chosen here, by validation. Needs matplotlib (extra [dev]).
"""

import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TITLES = {"lamb": "LAMB", "lars": "LARS", "adamw": "AdamW", "momentum": "momentum"}
CHOICES = {"rule": "tuned at the smallest batch, then sqrt rule", "tuned": "tuned at each batch"}


def best_rate(cell: dict[str, Any]) -> int:
    """Returns the position of the learning rate that validates best, on average over the seeds.

    A few hundred images make ties likely: the lower validation loss decides those.
    """

    def merit(k: int) -> tuple[float, float]:
        losses = [math.inf if loss is None else loss for loss in cell["validation_loss"][k]]
        return float(np.mean(cell["validation_accuracy"][k])), -float(np.mean(losses))

    return max(range(len(cell["learning_rates"])), key=merit)


def summarize(cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns test accuracy (mean, standard deviation) per optimizer, batch and choice of rate."""
    cells = sorted(cells, key=lambda cell: (list(TITLES).index(cell["optimizer"]), cell["batch"]))
    rows, kept = [], dict[str, int]()
    for cell in cells:
        tuned = best_rate(cell)
        # The smallest batch comes first, and the rule stays with what was best there.
        rule = kept.setdefault(cell["optimizer"], tuned)
        for choice, k in (("rule", rule), ("tuned", tuned)):
            accuracies = np.asarray(cell["test_accuracy"][k])
            rows.append(
                {
                    "optimizer": cell["optimizer"],
                    "batch": cell["batch"],
                    "choice": choice,
                    "learning_rate": cell["learning_rates"][k],
                    "at_edge": k in (0, len(cell["learning_rates"]) - 1),
                    "mean": float(accuracies.mean()),
                    "std": float(accuracies.std(ddof=1)) if accuracies.size > 1 else 0.0,
                    "diverged": sum(loss is None for loss in cell["train_loss"][k]),
                    "train_loss": float(
                        np.mean([math.nan if v is None else v for v in cell["train_loss"][k]])
                    ),
                }
            )
    return rows


def markdown_table(
    rows: list[dict[str, Any]], choice: str, show: Callable[[dict[str, Any]], str]
) -> list[str]:
    """Returns the lines of one table: an optimizer a line, a batch size a column."""
    rows = [row for row in rows if row["choice"] == choice]
    batches = sorted({row["batch"] for row in rows})
    lines = [
        "| batch | " + " | ".join(map(str, batches)) + " |",
        "|---" * (len(batches) + 1) + "|",
    ]
    for name in TITLES:
        shown = {row["batch"]: show(row) for row in rows if row["optimizer"] == name}
        if shown:
            cells = [shown.get(batch, "-") for batch in batches]
            lines.append(f"| {TITLES[name]} | " + " | ".join(cells) + " |")
    return lines


def show_accuracy(row: dict[str, Any]) -> str:
    """Returns "mean ± deviation" in percent; says how many seeds diverged, if any did."""
    text = f"{100 * row['mean']:.2f} ± {100 * row['std']:.2f}"
    return text + (f" ({row['diverged']} diverged)" if row["diverged"] else "")


def show_rate(row: dict[str, Any]) -> str:
    """Returns the learning rate, with a star where the grid ends there."""
    return f"{row['learning_rate']:.2g}" + ("*" if row["at_edge"] else "")


def render_markdown(results: dict[str, Any]) -> str:
    """Returns the tables of a study, and what they were measured with, in Markdown."""
    rows, config, machine = summarize(results["cells"]), results["config"], results["machine"]
    example = results["cells"][0]
    lines = [
        f"Test accuracy in percent, mean ± standard deviation over {config['seeds']} seeds, after "
        f"{config['epochs']} epochs of {results['images']['train']:,} images "
        f"({results['parameters']:,} parameters).",
        "",
    ]
    for choice, title in CHOICES.items():
        lines += [f"**Learning rate {title}**", ""]
        lines += [*markdown_table(rows, choice, show_accuracy), ""]
    lines += ["**Peak learning rates** (rule / tuned; * = at the end of the grid)", ""]
    tuned = {(r["optimizer"], r["batch"]): r for r in rows if r["choice"] == "tuned"}
    both = markdown_table(
        rows,
        "rule",
        lambda row: f"{show_rate(row)} / {show_rate(tuned[row['optimizer'], row['batch']])}",
    )
    lines += [*both, ""]
    lines += ["**Training loss** (rule / tuned, nats)", ""]
    losses = markdown_table(
        rows,
        "rule",
        lambda row: (
            f"{row['train_loss']:.3f} / {tuned[row['optimizer'], row['batch']]['train_loss']:.3f}"
        ),
    )
    lines += [*losses, ""]
    steps = {
        cell["batch"]: f"{cell['steps']} ({cell['warmup_steps']})" for cell in results["cells"]
    }
    lines += [
        "Updates (of these warm-up): "
        + ", ".join(f"{steps[batch]} at {batch}" for batch in sorted(steps))
        + f". Grid: {len(example['learning_rates'])} rates, each {config['factor']:g} times the "
        "one before.",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        + ", ".join(f"{name} {number}" for name, number in results["versions"].items())
        + f"; {results['wall_seconds'] / 60:.1f} minutes.",
        "",
    ]
    return "\n".join(lines)


def plot(results: dict[str, Any], target: Path) -> None:
    """Draws test accuracy against batch size, a panel for each choice of the learning rate."""
    rows = summarize(results["cells"])
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axis, (choice, title) in zip(axes, CHOICES.items(), strict=True):
        for shift, name in enumerate(TITLES):
            chosen = [r for r in rows if r["optimizer"] == name and r["choice"] == choice]
            if not chosen:
                continue
            axis.errorbar(
                # Set apart a little, so that the bars of one batch do not hide each other.
                [row["batch"] * 1.03 ** (shift - 1.5) for row in chosen],
                [100 * row["mean"] for row in chosen],
                yerr=[100 * row["std"] for row in chosen],
                label=TITLES[name],
                marker="o",
                markersize=4,
                linewidth=1.2,
                capsize=3,
            )
        batches = sorted({row["batch"] for row in rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(batches, [str(batch) for batch in batches])
        axis.set_xlabel("batch size (images)")
        axis.set_title(f"learning rate {title}", fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].legend()
    figure.savefig(target, dpi=120)


def write_report(folder: Path) -> None:
    """Reads results.json in the folder and writes table and plot beside it."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    (folder / "table.md").write_text(render_markdown(results), encoding="utf-8")
    plot(results, folder / "accuracy.png")


if __name__ == "__main__":
    write_report(Path(sys.argv[1]))
