"""Predicts what each choice that makes the step fast on TPU v3 is worth: one at a time is undone.

    python scripts/lever_table.py --output docs/results/levers

The recipe's step (configs/bert_large_64k_32k.py on v3:32x32) is compiled as it is configured, then
with one key changed at a time. Programs of 2 and of 4 layers are compiled and a line drawn through
them to 24 (`bert-lamb plan --quick`); minutes of compiling for each. Readings are kept (--cache),
so an interrupted table goes on where it stopped. Writes results.json and table.md. Nothing is
measured on a TPU; the method is that of docs/scaling.md.
"""

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import jax
import machine
from plan_table import CONFIGS, VOCABULARY

from bert_lamb.cli.overrides import load_config
from bert_lamb.planning.cache import default_folder
from bert_lamb.planning.fitting import Fit, fit_phase
from bert_lamb.planning.plan import Request, resolve_vocabulary, workshop_on
from bert_lamb.planning.topology import topology_devices

CONFIG = CONFIGS / "bert_large_64k_32k.py"
TOPOLOGY = "v3:32x32"
LEVERS: dict[str, dict[str, Any]] = {
    "as configured": {},
    "attention left to JAX (plain)": {"model.attention": "plain"},
    "32-bit dropout integers": {"model.dropout_bits": 32},
    "threefry for dropout": {"model.dropout_rng": "threefry"},
    "no dropout": {"model.hidden_dropout": 0.0, "model.attention_dropout": 0.0},
    "exact GELU (erf)": {"model.activation": "gelu"},
    "layers scanned": {"model.scan_layers": True},
    "products kept, the rest recomputed (remat dots)": {"model.remat": "dots"},
    "layers recomputed (remat full)": {"model.remat": "full"},
    "optimizer not sharded": {"parallel.fsdp": 1},
    "weights gathered by layer": {"parallel.gather": "layer"},
    "gradients summed in float32": {"parallel.reduce_dtype": "float32"},
    "no options for overlap": {"parallel.overlap": False},
}


def main() -> int:
    """Predicts every lever for the chosen phases and writes the table after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--phase", type=int, action="append", help="1 or 2 (default: both)")
    parser.add_argument("--only", action="append", choices=LEVERS, metavar="LEVER")
    parser.add_argument("--cache", type=Path, default=default_folder(), help="for readings")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    args.output.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for number in args.phase or (1, 2):
        for name in args.only or LEVERS:
            print(f"phase {number}: {name}", file=sys.stderr, flush=True)
            results.append(_row(name, number, predicted(LEVERS[name], number - 1, args.cache)))
            _write(args.output, results)
    print((args.output / "table.md").read_text(encoding="utf-8"))
    return 0


def predicted(changes: dict[str, Any], index: int, cache: Path) -> Fit:
    """Compiles one phase with some keys changed, few layers at a time."""
    overrides = [f"--config.{key}={value}" for key, value in changes.items()]
    config, _ = resolve_vocabulary(load_config(str(CONFIG), overrides), VOCABULARY)
    devices = topology_devices(TOPOLOGY)
    request = Request(folder=cache, quick=True, say=lambda line: print(line, file=sys.stderr))
    return fit_phase(config, index, workshop_on(config, devices, request))


def _row(name: str, phase: int, fit: Fit) -> dict[str, Any]:
    row: dict[str, Any] = {
        "lever": name, "phase": phase, "needed_gib": fit.needed / 2**30, "fits": fit.fits,
    }  # fmt: skip
    if fit.figures is None:
        return row | {"largest_rows": fit.largest_rows}
    prediction = fit.figures.prediction
    return row | {
        "ms": None if prediction.estimate is None else 1e3 * prediction.estimate,
        "hidden_ms": 1e3 * (prediction.hidden or 0.0),
        "communication_ms": 1e3 * (prediction.communication or 0.0),
        "computing_ms": {part: 1e3 * s for part, s in prediction.computing.items()},
    }


def _write(folder: Path, results: list[dict[str, Any]]) -> None:
    values = {
        "machine": machine.describe(),
        "jax": jax.__version__,
        "libtpu": importlib.metadata.version("libtpu"),
        "config": CONFIG.name,
        "topology": TOPOLOGY,
        "results": results,
    }
    (folder / "results.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    lines = [
        "| phase | with | ms a step | against the config | computing | communication | hidden "
        "| GiB a core |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results:
        base = next(r for r in results if r["phase"] == row["phase"])
        gib = f"{row['needed_gib']:.2f}" + ("" if row["fits"] else ", does not fit")
        cells = ["n/a"] * 5
        if row.get("ms") is not None:
            change = "" if row is base else f"{row['ms'] - base['ms']:+.1f}"
            computing = sum(row["computing_ms"].values())
            numbers = (computing, row["communication_ms"], row["hidden_ms"])
            cells = [f"{row['ms']:.1f}", change, *(f"{number:.1f}" for number in numbers)]
        lines.append(f"| {row['phase']} | {row['lever']} | " + " | ".join([*cells, gib]) + " |")
    note = "Before kappa. Predicted, not measured; drawn on a line through programs of few layers."
    text = "\n".join([*lines, "", note])
    (folder / "table.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
