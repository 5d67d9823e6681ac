"""Time and peak memory of one LAMB update on the parameter trees of BERT.

    python scripts/benchmark_optimizers.py --output docs/results/optimizer_speed

The sides take turns in one process, one update each per round, and the median of the rounds counts.
Clipping and masks are on everywhere, parameters and state are donated. Memory is what the compiler
plans for arguments, results and temporaries, in float32 numbers per parameter, and the growth of
the peak of a process of its own. Sides:

- ours: bert_lamb.optim.lamb on layers stacked in one array, one ratio per layer
- ours_tensors: the same with every layer's tensors in arrays of their own
- optax: optax.lamb on such separate tensors, which is how it gives one ratio per layer
- optax_stacked: optax.lamb on stacked layers: one ratio for all layers, so another algorithm
- torch, torch_compiled: LAMB in PyTorch, where it is installed (extra [parity])
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
import numpy as np
import optax

from bert_lamb import model
from bert_lamb.config import PRESETS, ModelConfig
from bert_lamb.optim import lamb, leaf_paths, path_mask

ROOT = Path(__file__).resolve().parents[1]
JAX_SIDES = ("ours", "ours_tensors", "optax", "optax_stacked")
TORCH_SIDES = ("torch", "torch_compiled")
Update = Callable[[], None]
Shapes = Any


def bert_shapes(size: str) -> tuple[Shapes, Any]:
    """Returns the shapes of BERT's parameters, layers stacked, and the counts of stacked axes."""
    config = ModelConfig(vocab_size=30522, **PRESETS[size])
    shapes = jax.eval_shape(lambda key: model.init(config, key), jax.random.key(0))
    return shapes, model.stacked_axes(shapes)


def taken_apart(shapes: Shapes, stacked: Any) -> Shapes:
    """Returns a flat dict with one entry per published tensor."""
    tensors = {}
    leaves = zip(*map(jax.tree.leaves, (leaf_paths(shapes), shapes, stacked)), strict=True)
    for path, leaf, axes in leaves:
        if not axes:
            tensors[path] = leaf
            continue
        for layer in range(leaf.shape[0]):
            group, _, name = path.rpartition("/")
            tensors[f"{group}/{layer}/{name}"] = jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
    return tensors


def build_jax(side: str, size: str) -> tuple[Update, float]:
    """Returns a function that makes one update, and the planned floats per parameter."""
    shapes, stacked = bert_shapes(size)
    if side in ("ours_tensors", "optax"):
        shapes, stacked = taken_apart(shapes, stacked), 0
    mask = path_mask(shapes)
    if side.startswith("ours"):
        optimizer = lamb(
            1e-3,
            weight_decay=0.01,
            mask=mask,
            trust_ratio_mask=mask,
            stacked=stacked,
            clip_norm=1.0,
        )
    else:
        optimizer = optax.chain(
            optax.clip_by_global_norm(1.0), optax.lamb(1e-3, weight_decay=0.01, mask=mask)
        )

    def step(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    state_shapes = jax.eval_shape(optimizer.init, shapes)
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(shapes, state_shapes, shapes).compile()
    plan = compiled.memory_analysis()
    count = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(shapes))
    planned = (
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        + plan.temp_size_in_bytes
        - plan.alias_size_in_bytes
    ) / (4 * count)

    rng = np.random.default_rng(0)

    def draw(x: Any) -> jax.Array:
        return jnp.asarray(0.02 * rng.standard_normal(x.shape, np.float32))

    params, gradients = jax.tree.map(draw, shapes), jax.tree.map(draw, shapes)
    held = [params, jax.jit(optimizer.init)(params)]

    def update() -> None:
        held[:] = compiled(*held, gradients)
        jax.block_until_ready(held)

    return update, planned


def build_torch(side: str, size: str) -> tuple[Update, None]:
    """The same for PyTorch, which plans no memory ahead."""
    import torch

    sys.path.insert(0, str(ROOT))
    from tests.reference.torch_lamb import TorchLamb

    shapes = taken_apart(*bert_shapes(size))
    adapts = list(path_mask(shapes).values())
    generator = torch.Generator().manual_seed(0)
    params, gradients = (
        [0.02 * torch.randn(x.shape, generator=generator) for x in shapes.values()]
        for _ in range(2)
    )
    optimizer = TorchLamb(params, adapts)
    if side == "torch_compiled":
        optimizer.compile()
    return lambda: optimizer.step(gradients), None


def build(side: str, size: str) -> tuple[Update, float | None]:
    """Returns one side's update and its planned floats per parameter."""
    return build_torch(side, size) if side in TORCH_SIDES else build_jax(side, size)


def alternate(sides: list[str], size: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Returns the seconds of each side's updates, taken in turns, and its planned memory."""
    built = {side: build(side, size) for side in sides}
    for update, _ in built.values():
        update()
        update()
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (update, _) in built.items():
            gc.collect()
            start = time.perf_counter()
            update()
            seconds[side].append(time.perf_counter() - start)
    return {
        side: {
            "median_seconds": statistics.median(seconds[side]),
            "seconds": seconds[side],
            "planned_floats_per_parameter": built[side][1],
        }
        for side in sides
    }


def measure_peak(side: str, size: str) -> float:
    """Runs three updates of one side in a process of its own; returns its peak in bytes."""
    command = [sys.executable, __file__, "--peak-of", side, "--sizes", size]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def table(results: dict[str, Any]) -> str:
    """Returns the results as Markdown."""
    lines = []
    for size, sides in results["sizes"].items():
        base = sides.get("optax")
        lines += [
            f"BERT-{size}:",
            "",
            "| side | seconds per update (median) | speed, optax = 1 "
            "| planned floats per parameter | peak memory of a process, GB |",
            "|---|---|---|---|---|",
        ]
        for side, row in sides.items():
            speed = f"{base['median_seconds'] / row['median_seconds']:.2f}" if base else ""
            planned = row["planned_floats_per_parameter"]
            planned_text = "" if planned is None else f"{planned:.2f}"
            lines.append(
                f"| {side} | {row['median_seconds']:.3f} | {speed} | {planned_text} "
                f"| {row['peak_bytes'] / 1e9:.2f} |"
            )
        lines.append("")
    return "\n".join(lines)


def installed(package: str) -> str | None:
    """Returns a package's version, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["base", "large"], choices=sorted(PRESETS))
    parser.add_argument("--sides", nargs="+", default=None, choices=(*JAX_SIDES, *TORCH_SIDES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=None, help="folder for results.json")
    parser.add_argument("--peak-of", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    if arguments.peak_of:
        update, _ = build(arguments.peak_of, arguments.sizes[0])
        for _ in range(3):
            update()
        print(machine.peak_bytes())
        return

    sides = arguments.sides or [*JAX_SIDES, *(TORCH_SIDES if installed("torch") else ())]
    earlier = arguments.output and arguments.output / "results.json"
    known = json.loads(earlier.read_text()) if earlier and earlier.exists() else {"sizes": {}}
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "versions": {name: installed(name) for name in ("jax", "jaxlib", "optax", "torch")},
        "rounds": arguments.rounds,
        "sizes": known["sizes"],
    }
    for size in arguments.sizes:
        rows = alternate(sides, size, arguments.rounds)
        gc.collect()
        for side in sides:
            rows[side]["peak_bytes"] = measure_peak(side, size)
        results["sizes"][size] = rows
    print(table(results))
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (arguments.output / "table.md").write_text(table(results))


if __name__ == "__main__":
    main()
