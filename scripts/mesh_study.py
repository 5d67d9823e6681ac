"""Trains one small BERT on many meshes and compares the loss curves, step by step.

    python scripts/mesh_study.py --records runs/wikibooks-data/seq128/train \
        --output docs/results/mesh_study

Every run is a job of its own through the command line: 50 steps of 32 x 128 with dropout, from the
same seed, on eight virtual devices of the CPU (one run has two processes of four). Writes
results.json, with every loss, and curves.png.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine

STEPS = 50
# Of each run: flags, devices, processes.
RUNS: dict[str, tuple[dict[str, Any], int, int]] = {
    "1 device": ({}, 1, 1),
    "data 8": ({}, 8, 1),
    "data 4 x tensor 2": ({"tensor": 2}, 8, 1),
    "data 2 x tensor 4": ({"tensor": 4}, 8, 1),
    "fsdp 8, gathered by layer": ({"fsdp": 8, "gather": "layer"}, 8, 1),
    "fsdp 8, gathered by step (sharded optimizer)": ({"fsdp": 8}, 8, 1),
    "data 2 x fsdp 2 x tensor 2": ({"fsdp": 2, "tensor": 2}, 8, 1),
    "replica 2 x data 4": ({"replica": 2}, 8, 1),
    "data 8, reduced by layer": ({"reduce": "layer"}, 8, 1),
    "1 device, accumulation 4": ({"max_rows_per_device": 8}, 1, 1),
    "data 8, accumulation 4": ({"max_rows_per_device": 1}, 8, 1),
    "2 processes x 4 devices": ({}, 8, 2),
    "data 8, bf16 reduction": ({"reduce_dtype": "bfloat16"}, 8, 1),
}
CONFIG = """
import ml_collections


def get_config():
    return ml_collections.ConfigDict({{
        "model": {{"num_layers": 2, "hidden_size": 128, "num_heads": 4, "intermediate_size": 512,
                  "scan_layers": True}},
        "phases": [{{"records": {records!r}, "seq_length": 128, "global_batch": 32,
                    "steps": {steps}, "max_predictions": 20, "peak_lr": 1e-2,
                    "warmup_steps": 20}}],
        "logging": {{"every_steps": 1, "tensorboard": False}},
        "checkpoint": {{"every_steps": 1000}},
    }})
"""


def main() -> int:
    """Runs all and writes the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", required=True, help="records of 128 tokens")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    curves = {}
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "config.py"
        config.write_text(CONFIG.format(records=os.path.abspath(args.records), steps=STEPS))
        for number, (name, (flags, devices, processes)) in enumerate(RUNS.items()):
            workdir = Path(scratch) / str(number)
            curves[name] = losses(config, workdir, flags, devices, processes)
            print(f"{name:46} last loss {curves[name][-1]:.6f}", flush=True)
    base = curves["1 device"]
    table = {
        name: {
            "largest_difference": max(abs(a - b) for a, b in zip(curve, base, strict=True)),
            "equal_steps": sum(a == b for a, b in zip(curve, base, strict=True)),
        }
        for name, curve in curves.items()
    }
    args.output.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine.describe(), "steps": STEPS, "table": table, "losses": curves}
    (args.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    plot(curves, args.output / "curves.png")
    for name, row in table.items():
        print(f"{name:46} {row['largest_difference']:.2e}  {row['equal_steps']} of {STEPS} equal")
    return 0


def losses(
    config: Path, workdir: Path, flags: dict[str, Any], devices: int, processes: int
) -> list[float]:
    """Trains once; returns the loss of every step."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    keys = {"max_rows_per_device": "phases[0].max_rows_per_device"}
    overrides = [f"--config.{keys.get(k, f'parallel.{k}')}={v}" for k, v in flags.items()]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices // processes),
    }
    together = [
        [] if processes == 1 else [f"--coordinator=localhost:{port}",
                                   f"--num-processes={processes}", f"--process-id={i}"]
        for i in range(processes)
    ]  # fmt: skip
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "bert_lamb.cli", "pretrain", f"--config={config}",
             f"--workdir={workdir}", *overrides, *extra],
            env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )
        for extra in together
    ]  # fmt: skip
    for job in jobs:
        _, errors = job.communicate()
        if job.returncode:
            raise SystemExit(errors)
    records = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "train"]


def plot(curves: dict[str, list[float]], path: Path) -> None:
    """Draws the losses, and how far each lies from the one of a single device."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 8), sharex=True)
    base = curves["1 device"]
    steps = range(1, len(base) + 1)
    for name, curve in curves.items():
        above.plot(steps, curve, linewidth=1, label=name)
        gaps = [abs(a - b) or None for a, b in zip(curve, base, strict=True)]
        below.plot(steps, gaps, linewidth=1)
    above.set_ylabel("loss")
    above.legend(fontsize=7)
    below.set_yscale("log")
    below.set_ylabel("difference from 1 device")
    below.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
