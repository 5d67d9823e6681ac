"""Measures how long the step takes to compile: scanned or unrolled, first or from the cache.

    python scripts/compile_time.py --config=configs/bert_base_32k.py --rows=32 --output=DIR
    python scripts/compile_time.py --config=configs/bert_large_64k_32k.py --topology=v3:32x32 \
        --output=DIR

On the devices that are here, each program is compiled into an empty folder of JAX's persistent
cache and then, in the same process, from it (the launchers set JAX_COMPILATION_CACHE_DIR). For
absent TPUs (--topology, needs bert-lamb[tpu]) only the first is there to measure. --rows makes the
batch of each phase smaller. Writes results.json, anew after each program.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import machine
from plan_table import VOCABULARY

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import PretrainConfig
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.plan import resolve_vocabulary
from bert_lamb.planning.topology import compile_absent, topology_devices


def main(argv: Sequence[str] | None = None) -> int:
    """Compiles each phase both ways, prints and writes the seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], allow_abbrev=False,
        epilog="Keys of the config are set as --config.KEY=VALUE.",
    )  # fmt: skip
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--topology", help="of absent TPUs, such as v3:32x32")
    parser.add_argument("--rows", type=int, help="of a batch, instead of the config's")
    args, overrides = parser.parse_known_args(argv)
    jax.config.update("jax_platforms", "cpu")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # JAX keeps to the first folder that it used.
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        _measure(args, overrides)
    return 0


def _measure(args: argparse.Namespace, overrides: Sequence[str]) -> None:
    results: list[dict[str, Any]] = []
    values = {
        "machine": machine.describe(),
        "jax": jax.__version__,
        "config": Path(args.config).name,
        "topology": args.topology,
        "results": results,
    }
    for scan in (True, False):
        flags = [*overrides, f"--config.model.scan_layers={scan}"]
        number = len(load_config(args.config, flags).phases)
        if args.rows:
            flags += [f"--config.phases[{i}].global_batch={args.rows}" for i in range(number)]
        config, _ = resolve_vocabulary(load_config(args.config, flags), VOCABULARY)
        for index in range(number):
            results.append({"phase": index + 1, "layers": config.model.num_layers, "scanned": scan,
                            **seconds(config, index, args.topology)})  # fmt: skip
            print(json.dumps(results[-1]), flush=True)
            text = json.dumps(values, indent=1) + "\n"
            (args.output / "results.json").write_text(text, encoding="utf-8")


def seconds(config: PretrainConfig, index: int, topology: str | None) -> dict[str, float]:
    """Compiles the step of a phase; returns how long it took each time."""
    devices = topology_devices(topology) if topology else jax.local_devices()[:1]
    mesh = make_mesh(config.parallel, devices)
    took = {}
    for which in ("first",) if topology else ("first", "cached"):
        jax.clear_caches()
        lowered, options = lower_phase(config, index, mesh)
        began = time.perf_counter()
        if topology:
            compile_absent(lowered, options)
        else:
            lowered.compile(compiler_options=options)
        took[which] = time.perf_counter() - began
    return took


if __name__ == "__main__":
    sys.exit(main())
