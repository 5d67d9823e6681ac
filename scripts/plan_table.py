"""Plans every row of the paper's Table 1 on its published number of TPU v3 chips.

    python scripts/plan_table.py --output docs/results/plan_table1

Compiles both phases of each row for the slice; needs libtpu (bert-lamb[tpu]) and no accelerator,
and minutes for each compilation. Readings are kept (--cache), so an interrupted table goes on where
it stopped. Writes results.json and table.md; predicted minutes stand beside the published ones.
Rows that are there already and not asked for (--only) stay.
"""

import argparse
import importlib.metadata
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import machine

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import ConfigError
from bert_lamb.planning.cache import default_folder
from bert_lamb.planning.plan import Plan, Request, plan_on, resolve_vocabulary
from bert_lamb.planning.predict import KAPPA_BAND
from bert_lamb.planning.report import plan_values
from bert_lamb.recipes import TABLE_1, Row

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
# Of Google's uncased BERT, with which the paper's runs were made.
VOCABULARY = 30_522
HEADER = (
    "| config | batch | chips | phase 1, ms | phase 2, ms | share of peak | GiB a core "
    "| predicted, min | band, min | published, min | predicted / published |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Plans the rows and writes the table after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--only", action="append", metavar="CONFIG", help="a row by its config")
    parser.add_argument("--cache", type=Path, default=default_folder(), help="for readings")
    parser.add_argument("--quick", action="store_true", help="draw a line through few layers")
    args = parser.parse_args(argv)
    jax.config.update("jax_platforms", "cpu")
    rows = chosen(args.only)
    request = Request(folder=args.cache, quick=args.quick,
                      say=lambda line: print(line, file=sys.stderr, flush=True))  # fmt: skip
    args.output.mkdir(parents=True, exist_ok=True)
    results = {result["config"]: result for result in kept(args.output)}
    for row in rows:
        print(f"{row.config} on {topology_of(row.chips)}", file=sys.stderr, flush=True)
        began = time.perf_counter()
        try:
            found = plan_row(row, request)
        except ConfigError as error:
            found = {"config": row.config, "error": str(error)}
        found |= {"quick": args.quick, "seconds_to_plan": time.perf_counter() - began}
        results[row.config] = found
        write(args.output, [results[r.config] for r in TABLE_1 if r.config in results])
    print((args.output / "table.md").read_text(encoding="utf-8"))
    return 0


def chosen(names: Sequence[str] | None) -> tuple[Row, ...]:
    """Returns the rows whose configs are named, all without names.

    Raises:
        SystemExit: for a name that no row has.
    """
    known = {row.config: row for row in TABLE_1}
    for name in names or ():
        if name not in known:
            raise SystemExit(f"--only={name}: expected one of {', '.join(known)}")
    return tuple(known[name] for name in names) if names else TABLE_1


def topology_of(chips: int) -> str:
    """Returns the v3 slice of so many chips, a power of two, as square as there is one.

    The longer side comes last, where the mesh puts the ring of the sharded optimizer.
    """
    short = 2 ** math.floor(math.log2(chips) / 2)
    return f"v3:{short}x{chips // short}"


def plan_row(row: Row, request: Request) -> dict[str, Any]:
    """Plans a row on its published chips; returns what results.json holds of it."""
    config, source = resolve_vocabulary(
        load_config(str(CONFIGS / f"{row.config}.py"), []), VOCABULARY
    )
    plan = plan_on(config, source, topology_of(row.chips), request)
    published = {"minutes": row.minutes, "chips": row.chips, "f1": row.f1}
    return {
        "config": row.config,
        "batches": list(row.batches),
        "published": published,
        "plan": plan_values(plan, request.assumptions),
        "cells": cells(row, plan, request.assumptions.kappa),
    }


def cells(row: Row, plan: Plan, kappa: float) -> list[str]:
    """Returns the row of table.md."""
    batches = "/".join(f"{batch:,}" for batch in row.batches)
    milliseconds = [
        "n/a" if phase.seconds is None else f"{1e3 * phase.seconds:,.1f}" for phase in plan.phases
    ]
    gib = max(phase.fit.needed for phase in plan.phases if phase.fit) / 2**30
    shares = "/".join(
        "n/a" if phase.peak_share is None else f"{phase.peak_share:.0%}" for phase in plan.phases
    )
    time_cells = ["does not fit" if not plan.fits else "n/a", "n/a", f"{row.minutes:,.1f}", "n/a"]
    if plan.minutes is not None:
        low, high = (plan.minutes / kappa * factor for factor in KAPPA_BAND)
        time_cells = [
            f"{plan.minutes:,.1f}", f"{low:,.1f} to {high:,.1f}", f"{row.minutes:,.1f}",
            f"{plan.minutes / row.minutes:.2f}",
        ]  # fmt: skip
    return [row.config, batches, f"{row.chips:,}", *milliseconds, shares, f"{gib:.2f}", *time_cells]


def kept(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows that an earlier run has written."""
    file = folder / "results.json"
    return json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []


def write(folder: Path, results: Sequence[dict[str, Any]]) -> None:
    """Writes results.json and table.md."""
    values = {
        "machine": machine.describe(),
        "jax": jax.__version__,
        "libtpu": importlib.metadata.version("libtpu"),
        "rows": results,
    }
    (folder / "results.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    lines = [HEADER]
    for result in results:
        if "error" in result:
            lines.append(f"| {result['config']} | {result['error']} |" + " |" * 9)
        else:
            first, *cells = result["cells"]
            lines.append("| " + " | ".join([first + " *" * result["quick"], *cells]) + " |")
    note = "Predicted, not measured, by the method of docs/scaling.md."
    if any(result["quick"] for result in results):
        note += " Rows with a star are drawn on a line through programs of 2 and 4 layers."
    text = "\n".join([*lines, "", note])
    (folder / "table.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
