"""Compiles every BERT-Large and BERT-Base config for the slice of a TPU v3 pod it is laid out for.

    python scripts/compile_configs.py --output docs/results/configs_on_pods

The step of each phase, just as the trainer runs it, has to fit a core, send few collectives and no
large one in a wider type than asked for, and draw dropout from the hardware's generator. Needs
libtpu (bert-lamb[tpu]) and no accelerator, and minutes for each compilation. Readings are kept
(--cache), so an interrupted run goes on where it stopped. Writes results.json and table.md, anew
after each config. Exit status 1 if something does not hold.
"""

import argparse
import ast
import dataclasses
import importlib.metadata
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import machine
from jax.sharding import Mesh
from plan_table import CONFIGS, VOCABULARY, topology_of

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import ConfigError, PretrainConfig
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.planning import cache, torus
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.fitting import SAMPLED_LAYERS, Fit
from bert_lamb.planning.plan import PhasePlan, Request, plan_on, resolve_vocabulary
from bert_lamb.planning.reading import Exchange, StepReading
from bert_lamb.planning.report import plan_values
from bert_lamb.planning.topology import topology_devices

SIZES = ("bert_large", "bert_base")  # what the names of configs for pods begin with
MOST_COLLECTIVES = 30
# Threefry makes keys, a few words each; an array of more is random bits.
KEY_WORDS = 2**10
HEADER = (
    "| config | slice | phase | passes x rows | GiB a core | of | collectives | MiB sent "
    "| ms a step | share of peak | holds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)
_CHIPS = re.compile(r"([\d,]+) TPU v3 chips")
_THREEFRY = re.compile(r"call @threefry2x32\w*\(.*")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)ui32>")


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles the configs and writes the table after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", help="a config by its name")
    parser.add_argument("--cache", type=Path, default=cache.default_folder(), help="for readings")
    parser.add_argument("--quick", action="store_true", help="compile few layers, draw a line")
    args = parser.parse_args(argv)
    jax.config.update("jax_platforms", "cpu")
    names = chosen(args.only)
    args.output.mkdir(parents=True, exist_ok=True)
    request = Request(folder=args.cache, quick=args.quick,
                      say=lambda line: print(line, file=sys.stderr, flush=True))  # fmt: skip
    results: list[dict[str, Any]] = []
    for name in names:
        request.say(name)
        began = time.perf_counter()
        try:
            result = compile_config(name, request, args.cache)
        except ConfigError as error:
            result = {"config": name, "faults": [[str(error)]], "cells": []}
        results.append({**result, "seconds": time.perf_counter() - began})
        write(args.output, results, quick=args.quick)
    print((args.output / "table.md").read_text(encoding="utf-8"))
    return int(any(faults for result in results for faults in result["faults"]))


def pod_configs() -> dict[str, Path]:
    """Returns the files under configs/ that are laid out for a slice, by name."""
    return {path.stem: path for path in sorted(CONFIGS.glob("*.py")) if path.stem.startswith(SIZES)}


def chosen(names: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the names asked for, all without any.

    Raises:
        SystemExit: for a name that no config has.
    """
    known = pod_configs()
    for name in names or ():
        if name not in known:
            raise SystemExit(f"--only={name}: expected one of {', '.join(known)}")
    return tuple(names or known)


def chips_of(path: Path) -> int:
    """Returns for how many TPU v3 chips a config is laid out: its docstring says so.

    Raises:
        ConfigError: if it does not, or names two numbers.
    """
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    numbers = {int(found.replace(",", "")) for found in _CHIPS.findall(" ".join(text.split()))}
    if len(numbers) != 1:
        raise ConfigError(
            f"{path}: the docstring names {sorted(numbers) or 'no number'} of chips; expected one, "
            "as in 'Hardware: 1,024 TPU v3 chips'"
        )
    return numbers.pop()


def compile_config(name: str, request: Request, folder: Path) -> dict[str, Any]:
    """Compiles the phases of a config for its slice and looks at them.

    Args:
        name: of the file under configs/.
        request: of the plan.
        folder: where the plan keeps its readings.

    Returns:
        What results.json holds of the config: the plan, and for each phase its collectives, what
        does not hold, and its row of the table.

    Raises:
        ConfigError: if the config does not fit the slice.
    """
    path = pod_configs()[name]
    topology = topology_of(chips_of(path))
    config, source = resolve_vocabulary(load_config(str(path), []), VOCABULARY)
    plan = plan_on(config, source, topology, request)
    mesh = make_mesh(config.parallel, topology_devices(topology))
    sampled = _sampled(config) if request.quick else config
    faults, cells, sent = [], [], []
    for index, phase in enumerate(plan.phases):
        found: list[str] = []
        exchanges: Sequence[Exchange] = ()
        assert phase.fit is not None
        if phase.fit.fits:
            reading, text = kept_reading(sampled, index, mesh, folder)
            exchanges = reading.exchanges
            found = step_faults(config, reading, text)
        else:
            found = [f"needs {_gib(phase.fit.needed)} GiB of {_gib(phase.fit.capacity)}"]
        faults.append(found)
        sent.append([dataclasses.asdict(one) for one in exchanges])
        cells.append([name, topology, str(index + 1), *_cells(phase, phase.fit, exchanges, found)])
    return {
        "config": name,
        "plan": plan_values(plan, request.assumptions),
        "collectives": sent,
        "faults": faults,
        "cells": cells,
    }


def kept_reading(
    config: PretrainConfig, index: int, mesh: Mesh, folder: Path
) -> tuple[StepReading, str]:
    """Returns what a plan has read of a compiled step, and the step as it was lowered.

    Raises:
        ConfigError: if no plan has kept it, as where the folder is emptied meanwhile.
    """
    lowered, options = lower_phase(config, index, mesh)
    key = cache.key_of(lowered, options, list(mesh.devices.flat))
    found = cache.load(folder, key)
    if not isinstance(found, StepReading):
        raise ConfigError(f"--cache={folder}: {key}.json, just written, is gone; run again")
    return found, lowered.as_text()


def step_faults(config: PretrainConfig, reading: StepReading, lowered: str) -> list[str]:
    """Returns what a step has that it must not have, a line for each.

    Args:
        config: of the run.
        reading: of the compiled step.
        lowered: its text before compilation.
    """
    faults = []
    if len(reading.exchanges) > MOST_COLLECTIVES:
        faults.append(f"{len(reading.exchanges)} collectives, at most {MOST_COLLECTIVES} expected")
    for one in reading.exchanges:
        # Weights are gathered as they are computed with, gradients summed as the config says.
        gathered = one.kind == "all-gather"
        asked = config.model.dtype if gathered else config.parallel.reduce_dtype
        if asked == "bfloat16" and "f32" in one.dtypes and one.bytes >= torus.LARGE:
            over = "+".join(one.axes or ("parts of axes",))
            faults.append(f"{one.kind} of {one.bytes / 2**20:.1f} MiB over {over} in f32")
    return faults + _noise_faults(config, reading, lowered)


def _noise_faults(config: PretrainConfig, reading: StepReading, lowered: str) -> list[str]:
    model = config.model
    if model.dropout_rng != "rbg" or not max(model.hidden_dropout, model.attention_dropout):
        return []
    faults = []
    if (words := threefry_words(lowered)) > KEY_WORDS:
        faults.append(f"{words:,} random words at once by threefry, rbg asked for")
    if not reading.random_bytes:
        faults.append("no random bits from the hardware, rbg asked for")
    return faults


def threefry_words(lowered: str) -> int:
    """Returns the words of the largest array that a lowered program has threefry make."""
    shapes = (shape for call in _THREEFRY.findall(lowered) for shape in _TENSOR.findall(call))
    return max((math.prod(map(int, shape.split("x")[:-1])) for shape in shapes), default=0)


def _sampled(config: PretrainConfig) -> PretrainConfig:
    """Returns the larger of the two programs from which a quick plan draws its line."""
    layers = min(config.model.num_layers, SAMPLED_LAYERS[-1])
    model = dataclasses.replace(config.model, num_layers=layers)
    return dataclasses.replace(config, model=model)


def _cells(
    phase: PhasePlan, fit: Fit, exchanges: Sequence[Exchange], faults: Sequence[str]
) -> list[str]:
    mib = sum(one.bytes * (one.times or 1) for one in exchanges) / 2**20
    return [
        f"{fit.micro_batches:,} x {fit.pass_rows:,}",
        _gib(fit.needed),
        _gib(fit.capacity),
        f"{len(exchanges)}" if fit.fits else "n/a",
        f"{mib:,.0f}" if fit.fits else "n/a",
        "n/a" if phase.seconds is None else f"{1e3 * phase.seconds:,.1f}",
        "n/a" if phase.peak_share is None else f"{phase.peak_share:.0%}",
        "; ".join(faults) or "yes",
    ]


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"


def write(folder: Path, results: Sequence[Mapping[str, Any]], *, quick: bool) -> None:
    """Writes results.json and table.md."""
    values = {
        "machine": machine.describe(),
        "jax": jax.__version__,
        "libtpu": importlib.metadata.version("libtpu"),
        "quick": quick,
        "limits": {"collectives": MOST_COLLECTIVES, "large_bytes": torus.LARGE},
        "configs": results,
    }
    (folder / "results.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    lines = [HEADER]
    for result in results:
        lines += ["| " + " | ".join(cells) + " |" for cells in result["cells"]]
        if not result["cells"]:
            (reasons,) = result["faults"]
            lines.append(f"| {result['config']} |" + " |" * 9 + f" {'; '.join(reasons)} |")
    note = "Compiled, not run; times by the method of docs/scaling.md."
    if quick:
        few, more = SAMPLED_LAYERS
        note += (
            f" Drawn on a line through {few} and {more} layers; collectives are those of {more}."
        )
    (folder / "table.md").write_text("\n".join([*lines, "", note]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
