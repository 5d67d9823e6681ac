"""Compares LAMB, LARS, AdamW and momentum over batch sizes, on a small ResNet and small images.

    python scripts/batch_size_study.py --output docs/results/batch_size_study

Every run sees the same number of images, so a batch twice as large leaves half of the updates.
Two ways to choose the peak learning rate are compared, each for all four optimizers:

- rule: the LAMB paper's. The rate is tuned at the smallest batch alone and grows with the square
  root of the batch from there, under linear-epoch warm-up: the same number of warm-up updates at
  every batch, so that its share of the run grows with the batch.
- tuned: the best of a small grid at each batch, which the rule does without.

The grid itself moves along with the square root of the batch, so that the rule is one of its
columns and costs no runs of its own. Rates are chosen by accuracy on a validation split, and what
is reported is the accuracy on a test split that nothing was chosen by.

Writes results.json (every run), table.md and accuracy.png into the output folder; with `--render`
the last two alone, from an existing results.json. Needs scikit-learn and matplotlib (extra [dev]).
The task is the digits data set of scikit-learn: 1,797 images of 8 x 8 pixels, in ten classes.
"""

import argparse
import functools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bert_lamb.optim import (
    adamw,
    lamb,
    lars,
    linear_epoch_warmup,
    path_mask,
    sqrt_scaled,
    warmup_polynomial_decay,
)

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Params = dict[str, Any]
Split = tuple[jax.Array, jax.Array]

CLASSES = 10
CHANNELS = (16, 32)  # of the two stages: 4 x 4 and 2 x 2 pixels
TEST, VALIDATION = 360, 237  # images; 1,200 are left to train on
SPLIT_SEED = 0
# Images per update over all runs that are trained side by side. Above it the learning rates take
# turns: some hundred kilobytes of shifted images each would fill gigabytes and no cache.
AT_ONCE = 4096
WARMUP_AT_LARGEST = 0.2  # share of the run at the largest batch, as in the paper's Table 1

# The middle of each grid at the smallest batch, and the coefficient of weight decay. Decay is part
# of the gradient for momentum and LARS and beside it for the other two, hence the two magnitudes.
CENTRES = {"lamb": 1e-2, "lars": 1e-2, "adamw": 2e-3, "momentum": 5e-2}
DECAY = {"lamb": 1e-2, "lars": 1e-4, "adamw": 1e-2, "momentum": 1e-4}
TITLES = {"lamb": "LAMB", "lars": "LARS", "adamw": "AdamW", "momentum": "momentum"}
CHOICES = {"rule": "tuned at the smallest batch, then sqrt rule", "tuned": "tuned at each batch"}


# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


def load_splits() -> dict[str, Split]:
    """Returns images [N, 8, 8, 1], centred and scaled, and labels [N] of each split.

    The splits are stratified and the same for every seed of the study: seeds differ in the
    initial weights and in the order of the images.
    """
    digits = load_digits()
    images, labels = digits.images[..., None].astype(np.float32), digits.target
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=TEST, stratify=labels, random_state=SPLIT_SEED
    )
    images, valid_images, labels, valid_labels = train_test_split(
        images, labels, test_size=VALIDATION, stratify=labels, random_state=SPLIT_SEED
    )
    mean, spread = images.mean(), images.std()
    pairs = {
        "train": (images, labels),
        "validation": (valid_images, valid_labels),
        "test": (test_images, test_labels),
    }
    return {
        name: (jnp.asarray((x - mean) / spread), jnp.asarray(y, jnp.int32))
        for name, (x, y) in pairs.items()
    }


def draw_batches(key: jax.Array, images: int, batch: int, steps: int) -> jax.Array:
    """Returns indices [steps, batch] from one shuffled pass over the images after the other.

    A batch may reach from one pass into the next. Nothing is dropped at the end of a pass, which
    would cost the largest batches a good part of the data.
    """
    passes = math.ceil(steps * batch / images)
    order = jax.vmap(lambda key: jax.random.permutation(key, images))(jax.random.split(key, passes))
    return order.reshape(-1)[: steps * batch].reshape(steps, batch)


# ---------------------------------------------------------------------------------------------
# Model: a pre-activation ResNet of one block per stage; all normalization is within an example
# ---------------------------------------------------------------------------------------------


def init_kernel(key: jax.Array, size: int, inputs: int, outputs: int) -> Params:
    """Returns a kernel [size * size * inputs, outputs] of He's variance."""
    rows = size * size * inputs
    return {"kernel": jax.random.normal(key, (rows, outputs)) * math.sqrt(2 / rows)}


def init_norm(channels: int) -> Params:
    """Returns the scale and bias of a normalization."""
    return {"scale": jnp.ones(channels), "bias": jnp.zeros(channels)}


def init_params(key: jax.Array) -> Params:
    """Returns the parameters of the network."""
    keys = iter(jax.random.split(key, 2 + 3 * len(CHANNELS)))
    params: Params = {"stem": init_kernel(next(keys), 3, 1, CHANNELS[0]), "stages": []}
    for inputs, outputs in zip((CHANNELS[0], *CHANNELS), CHANNELS, strict=False):
        stage = {
            "norm_1": init_norm(inputs),
            "conv_1": init_kernel(next(keys), 3, inputs, outputs),
            "norm_2": init_norm(outputs),
            "conv_2": init_kernel(next(keys), 3, outputs, outputs),
        }
        if inputs != outputs:
            stage["shortcut"] = init_kernel(next(keys), 1, inputs, outputs)
        params["stages"].append(stage)
    params["norm"] = init_norm(CHANNELS[-1])
    params["head"] = init_kernel(next(keys), 1, CHANNELS[-1], CLASSES)
    params["head"]["bias"] = jnp.zeros(CLASSES)
    return params


def convolve(params: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """Convolves [B, S, S, C] with a 3 x 3 kernel, as one product with the nine shifted images.

    `jax.vmap` over kernels makes a grouped convolution of an ordinary one, which is many times
    slower on a CPU than the batched matrix product that it makes of this. The barriers keep XLA
    from working out what comes before anew for each of the nine, which it compiles for minutes.
    """
    size = x.shape[1]
    x = jax.lax.optimization_barrier(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))
    shifted = [
        x[:, row : row + size : stride, column : column + size : stride]
        for row in range(3)
        for column in range(3)
    ]
    return jax.lax.optimization_barrier(jnp.concatenate(shifted, axis=-1)) @ params["kernel"]


def normalize(params: Params, x: jax.Array) -> jax.Array:
    """Group norm of [B, S, S, C] with a single group: over all pixels and channels."""
    centred = x - x.mean((1, 2, 3), keepdims=True)
    variance = jnp.square(centred).mean((1, 2, 3), keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * params["scale"] + params["bias"]


def residual_block(params: Params, x: jax.Array) -> jax.Array:
    """Applies one block; it halves the image where it widens it."""
    widens = "shortcut" in params
    stride = 2 if widens else 1
    h = jax.nn.relu(normalize(params["norm_1"], x))
    shortcut = h[:, ::stride, ::stride] @ params["shortcut"]["kernel"] if widens else x
    h = convolve(params["conv_1"], h, stride)
    h = convolve(params["conv_2"], jax.nn.relu(normalize(params["norm_2"], h)))
    return shortcut + h


def predict(params: Params, images: jax.Array) -> jax.Array:
    """Returns the logits [B, CLASSES] of images [B, 8, 8, 1]."""
    x = convolve(params["stem"], images, stride=2)
    for stage in params["stages"]:
        x = residual_block(stage, x)
    x = jax.nn.relu(normalize(params["norm"], x)).mean((1, 2))
    return x @ params["head"]["kernel"] + params["head"]["bias"]


def mean_loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the mean cross entropy (nats) of a batch."""
    logits = predict(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


# ---------------------------------------------------------------------------------------------
# Training: one run is one scan; learning rates and seeds are two axes over it
# ---------------------------------------------------------------------------------------------


def make_optimizer(
    name: str, schedule: optax.Schedule, params: Params
) -> optax.GradientTransformation:
    """Returns one of the four; biases and norms neither decay nor adapt, in any of them."""
    mask, decay = path_mask(params), DECAY[name]
    if name == "lamb":
        return lamb(schedule, weight_decay=decay, mask=mask, trust_ratio_mask=mask)
    if name == "lars":
        return lars(schedule, weight_decay=decay, mask=mask, trust_ratio_mask=mask)
    if name == "adamw":
        return adamw(schedule, weight_decay=decay, mask=mask)
    if name == "momentum":
        return optax.chain(
            optax.add_decayed_weights(decay, mask=mask),
            optax.sgd(schedule, momentum=0.9, nesterov=True),
        )
    raise ValueError(f"optimizer = {name!r}: expected one of {', '.join(CENTRES)}")


def train(
    rate: jax.Array,
    seed: jax.Array,
    splits: dict[str, Split],
    *,
    name: str,
    batch: int,
    steps: int,
    warmup: int,
) -> dict[str, jax.Array]:
    """Trains once, and returns loss and accuracy on every split at the end.

    Args:
        rate: peak learning rate, a scalar.
        seed: of the initial weights and of the order of the images, a scalar.
        splits: images and labels by the split's name.
        name: of the optimizer.
        batch: images per update.
        steps: updates.
        warmup: updates of warm-up among them.
    """
    init_key, order_key = jax.random.split(jax.random.key(seed))
    params = init_params(init_key)
    # The shape of the schedule is known here and its height is not, being one lane of a vmap.
    shape = warmup_polynomial_decay(1.0, warmup, steps)
    optimizer = make_optimizer(name, lambda count: rate * shape(count), params)
    images, labels = splits["train"]

    def update(carry: Any, chosen: jax.Array) -> tuple[Any, None]:
        params, state = carry
        gradients = jax.grad(mean_loss)(params, images[chosen], labels[chosen])
        updates, state = optimizer.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), None

    order = draw_batches(order_key, images.shape[0], batch, steps)
    (params, _), _ = jax.lax.scan(update, (params, optimizer.init(params)), order)
    results = {}
    for split, (images_of, labels_of) in splits.items():
        logits = predict(params, images_of)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels_of)
        # argmax would read a diverged network as one that always answers 0.
        right = (logits.argmax(-1) == labels_of) & jnp.isfinite(logits).all(-1)
        results |= {f"{split}_accuracy": right.mean(), f"{split}_loss": losses.mean()}
    return results


def plan_steps(batch: int, epochs: int, images: int, largest: int) -> tuple[int, int]:
    """Returns the updates of a run and its updates of warm-up.

    The warm-up's share of the run is in proportion to the batch, `WARMUP_AT_LARGEST` at the
    largest, so that the number of its updates is the same at every batch but for rounding.
    """
    steps = max(1, round(epochs * images / batch))
    return steps, max(1, round(linear_epoch_warmup(WARMUP_AT_LARGEST, largest, batch) * steps))


def grid_rates(name: str, batch: int, arguments: argparse.Namespace) -> list[float]:
    """Returns the learning rates of a cell: around the centre, which follows the sqrt rule."""
    middle = (arguments.grid - 1) / 2
    centre = sqrt_scaled(CENTRES[name], min(arguments.batches), batch)
    return [centre * arguments.factor ** (k - middle) for k in range(arguments.grid)]


def run_cell(
    name: str, batch: int, splits: dict[str, Split], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Trains every learning rate and seed of one optimizer at one batch size.

    Returns:
        The cell's settings, times in seconds, and metrics as lists [rates, seeds].
    """
    images = splits["train"][0].shape[0]
    steps, warmup = plan_steps(batch, arguments.epochs, images, max(arguments.batches))
    rates = grid_rates(name, batch, arguments)
    one_run = functools.partial(train, name=name, batch=batch, steps=steps, warmup=warmup)
    over_seeds = jax.vmap(one_run, in_axes=(None, 0, None))
    if batch * len(rates) * arguments.seeds <= AT_ONCE:
        over_rates = jax.vmap(over_seeds, in_axes=(0, None, None))
    else:

        def over_rates(rates: jax.Array, seeds: jax.Array, splits: dict[str, Split]) -> Any:
            return jax.lax.map(lambda rate: over_seeds(rate, seeds, splits), rates)

    inputs = (jnp.asarray(rates), jnp.arange(arguments.seeds), splits)
    start = time.perf_counter()
    compiled = jax.jit(over_rates).lower(*inputs).compile()
    middle, cpu = time.perf_counter(), time.process_time()
    metrics = jax.device_get(compiled(*inputs))
    return {
        "optimizer": name,
        "batch": batch,
        "steps": steps,
        "warmup_steps": warmup,
        "learning_rates": rates,
        "compile_seconds": round(middle - start, 2),
        "run_seconds": round(time.perf_counter() - middle, 2),
        "run_cpu_seconds": round(time.process_time() - cpu, 2),
        **{metric: _finite_or_none(values) for metric, values in metrics.items()},
    }


def _finite_or_none(values: np.ndarray) -> list[list[float | None]]:
    """Nested lists with None where a run diverged, which JSON has no number for."""
    rows = np.asarray(values, np.float64).tolist()
    return [[round(v, 6) if math.isfinite(v) else None for v in row] for row in rows]


# ---------------------------------------------------------------------------------------------
# Choice of learning rates and report
# ---------------------------------------------------------------------------------------------


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
    cells = sorted(cells, key=lambda cell: (list(CENTRES).index(cell["optimizer"]), cell["batch"]))
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
    for name in CENTRES:
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
        for shift, name in enumerate(CENTRES):
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


def describe_machine() -> dict[str, Any]:
    """Returns the machine's CPU, its cores, and the version of Python."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text(encoding="utf-8").splitlines() if cpu_info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
    }


# ---------------------------------------------------------------------------------------------
# Command line
# ---------------------------------------------------------------------------------------------


def write_results(results: dict[str, Any], target: Path) -> None:
    """Writes results as JSON, each cell on a line of its own, to be read in a diff."""
    outline = json.dumps(results | {"cells": []}, indent=1, allow_nan=False)
    cells = ",\n  ".join(json.dumps(cell, allow_nan=False) for cell in results["cells"])
    text = outline.replace('"cells": []', f'"cells": [\n  {cells}\n ]')
    target.write_text(text + "\n", encoding="utf-8")


def study(arguments: argparse.Namespace) -> None:
    """Runs every cell; results.json is rewritten after each, so that a stop loses one at most."""
    splits = load_splits()
    shapes = jax.eval_shape(init_params, jax.random.key(0))
    results: dict[str, Any] = {
        "config": {k: v for k, v in vars(arguments).items() if k not in ("output", "render")}
        | {"channels": CHANNELS, "centres": CENTRES, "weight_decay": DECAY}
        | {"warmup_at_largest": WARMUP_AT_LARGEST, "split_seed": SPLIT_SEED},
        "images": {name: images.shape[0] for name, (images, _) in splits.items()},
        "parameters": sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)),
        "machine": describe_machine(),
        "versions": {name: version(name) for name in ("jax", "optax", "numpy", "scikit-learn")},
        "cells": [],
    }
    start = time.perf_counter()
    for name in arguments.optimizers:
        for batch in sorted(arguments.batches):
            cell = run_cell(name, batch, splits, arguments)
            results["cells"].append(cell)
            results["wall_seconds"] = round(time.perf_counter() - start, 1)
            write_results(results, arguments.output / "results.json")
            k = best_rate(cell)
            print(
                f"{name:8} {batch:5}: rate {cell['learning_rates'][k]:.2g} validates best, "
                f"{100 * np.mean(cell['validation_accuracy'][k]):.2f} %; "
                f"compiled in {cell['compile_seconds']:.1f} s, ran {cell['run_seconds']:.1f} s "
                f"({cell['run_cpu_seconds']:.1f} s of CPU)",
                flush=True,
            )


def parse_arguments() -> argparse.Namespace:
    """Reads the command line; `--smoke` shrinks every axis of the study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the images [20]")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each setting [5]")
    parser.add_argument("--grid", type=int, default=5, help="learning rates per cell [5]")
    parser.add_argument("--factor", type=float, default=2.0, help="from one rate to the next [2]")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024], metavar="B"
    )
    parser.add_argument(
        "--optimizers", nargs="+", default=list(CENTRES), choices=list(CENTRES), metavar="NAME"
    )
    parser.add_argument("--smoke", action="store_true", help="a minute's worth: does it run?")
    parser.add_argument("--render", action="store_true", help="only redraw from results.json")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.epochs, arguments.seeds, arguments.grid = 2, 2, 3
        arguments.batches = [128, 1024]
    for option in ("epochs", "seeds", "grid"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option} {getattr(arguments, option)}: expected 1 or more")
    if min(arguments.batches) < 1:
        parser.error(f"--batches {min(arguments.batches)}: expected 1 or more")
    if arguments.factor <= 1:
        parser.error(f"--factor {arguments.factor}: expected more than 1")
    return arguments


def main() -> None:
    """Runs the study, or only its report, and writes table and plot."""
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if not arguments.render:
        study(arguments)
    results = json.loads((arguments.output / "results.json").read_text(encoding="utf-8"))
    (arguments.output / "table.md").write_text(render_markdown(results), encoding="utf-8")
    plot(results, arguments.output / "accuracy.png")


if __name__ == "__main__":
    main()
