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

Writes results.json (every run) into the output folder, and what batch_size_report.py makes of it.
Needs scikit-learn and matplotlib (extra [dev]).
The task is the digits data set of scikit-learn: 1,797 images of 8 x 8 pixels, in ten classes.
"""

import argparse
import functools
import json
import math
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
import numpy as np
import optax
from batch_size_report import best_rate, write_report
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
        "config": {k: v for k, v in vars(arguments).items() if k != "output"}
        | {"channels": CHANNELS, "centres": CENTRES, "weight_decay": DECAY}
        | {"warmup_at_largest": WARMUP_AT_LARGEST, "split_seed": SPLIT_SEED},
        "images": {name: images.shape[0] for name, (images, _) in splits.items()},
        "parameters": sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)),
        "machine": machine.describe(),
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
    """Reads and checks the command line."""
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
    arguments = parser.parse_args()
    for option in ("epochs", "seeds", "grid"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option} {getattr(arguments, option)}: expected 1 or more")
    if min(arguments.batches) < 1:
        parser.error(f"--batches {min(arguments.batches)}: expected 1 or more")
    if arguments.factor <= 1:
        parser.error(f"--factor {arguments.factor}: expected more than 1")
    return arguments


def main() -> None:
    """Runs the study and its report."""
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    study(arguments)
    write_report(arguments.output)


if __name__ == "__main__":
    main()
