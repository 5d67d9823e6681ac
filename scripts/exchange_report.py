"""Compiles the trainer's step for absent TPUs and says what it sends and what memory it takes.

    python scripts/exchange_report.py --output docs/results/exchange

BERT-Large, phase 1 of the recipe, 16 rows of 128 tokens on each core, layers scanned, for one slice
of each topology below; needs libtpu (bert-lamb[tpu]) and no accelerator. About a minute for each
line on two idle cores. Writes results.json and tables.txt.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import machine

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import ParallelConfig, PretrainConfig
from bert_lamb.parallel.mesh import describe_mesh, make_mesh, row_devices
from bert_lamb.planning.collectives import collectives, describe
from bert_lamb.planning.compile import compile_phase
from bert_lamb.planning.topology import topology_devices

CONFIG = "configs/bert_large_64k_32k.py"
ROWS = 16
SETTINGS = {
    "data parallel": ParallelConfig(),
    "data parallel, bf16 sums": ParallelConfig(reduce_dtype="bfloat16"),
    "sharded optimizer": ParallelConfig(data=1, fsdp=-1),
    "sharded optimizer over 8": ParallelConfig(fsdp=8),
    "fsdp": ParallelConfig(data=1, fsdp=-1, gather="layer"),
    "tensor 4": ParallelConfig(tensor=4),
    "reduced by layer": ParallelConfig(reduce="layer"),
}
TOPOLOGIES = {
    "v3:4x4": (
        "data parallel", "data parallel, bf16 sums", "sharded optimizer", "fsdp", "tensor 4",
    ),
    "v5e:4x4": ("data parallel", "sharded optimizer", "sharded optimizer over 8",
                "reduced by layer"),
}  # fmt: skip


def main() -> int:
    """Compiles each setting and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    tables = []
    for topology, names in TOPOLOGIES.items():
        for name in names:
            row, table = report(topology, name)
            results.append(row)
            tables.append(table)
            print(table, flush=True)
            found = {"machine": machine.describe(), "config": CONFIG, "results": results}
            (args.output / "results.json").write_text(json.dumps(found, indent=1) + "\n")
            (args.output / "tables.txt").write_text("\n\n".join(tables) + "\n")
    return 0


def report(topology: str, name: str) -> tuple[dict[str, Any], str]:
    """Compiles one setting; returns its figures, and a table for people."""
    devices = topology_devices(topology)
    mesh = make_mesh(SETTINGS[name], devices)
    config = recipe(SETTINGS[name], ROWS * row_devices(mesh))
    began = time.perf_counter()
    compiled = compile_phase(config, 0, devices)
    seconds = time.perf_counter() - began
    memory = compiled.memory_analysis()
    gib = {
        "state": memory.argument_size_in_bytes / 2**30,
        "temporaries": memory.temp_size_in_bytes / 2**30,
    }
    found = collectives(compiled.as_text(), dict(mesh.shape))
    found = [one for one in found if one.group_size != 1]
    row = {
        "topology": topology,
        "setting": name,
        "mesh": describe_mesh(mesh),
        "gib_per_device": gib,
        "compile_seconds": seconds,
        "collectives": [
            {
                "kind": one.kind, "axes": one.axes, "dtypes": one.dtypes, "bytes": one.bytes,
                "times": one.times, "in_loop": bool(one.loops), "asynchronous": one.asynchronous,
                "products_during": one.products_during, "backward_after": one.backward_after,
            }
            for one in found
        ],
    }  # fmt: skip
    title = (
        f"{topology}, {name} ({describe_mesh(mesh)}): state {gib['state']:.2f} GiB, temporaries "
        f"{gib['temporaries']:.2f} GiB on each device"
    )
    return row, f"{title}\n{describe(found)}"


def recipe(parallel: ParallelConfig, batch: int) -> PretrainConfig:
    """Returns the recipe's first phase with another mesh and batch."""
    config = load_config(CONFIG, [])
    model = dataclasses.replace(config.model, vocab_size=30_522, scan_layers=True)
    phase = dataclasses.replace(config.phases[0], global_batch=batch, max_rows_per_device=0)
    evaluation = dataclasses.replace(config.evaluation, batch=batch)
    return dataclasses.replace(
        config, model=model, phases=(phase,), parallel=parallel, evaluation=evaluation
    )


if __name__ == "__main__":
    sys.exit(main())
