"""How fast records become masked batches, against how fast a step takes them.

    python scripts/benchmark_input.py --config configs/bert_mini_wikibooks_cpu.py \
        --output docs/results/input_pipeline

For the records of each phase of the config:

- rows: masked rows per second of CPU time, all threads of the process added up (so "per core"),
  for plain, whole-word and n-gram masking, the sides taking turns, medians of the rounds;
- seek: seconds from opening the records to the first batch, at batch 0 and at batch 1,000,000;
- share: CPU seconds of a batch over CPU seconds of the config's training step on the same batch,
  which takes turns with it; and the memory that the pipeline adds to the process.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import machine

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import MaskingConfig, ParallelConfig, PhaseConfig, PretrainConfig
from bert_lamb.data.batches.pipeline import Batch, train_batches
from bert_lamb.model import pretraining
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training.pretraining import resolve
from bert_lamb.training.program import compile_step
from bert_lamb.training.start import initial_state, lay_out

MASKING = {
    "plain": MaskingConfig(),
    "whole_word": MaskingConfig(whole_word=True),
    "ngram_3": MaskingConfig(whole_word=True, ngram=3),
}
FAR = 1_000_000


def batches(phase: PhaseConfig, masking: MaskingConfig, rows: int, start: int) -> Iterator[Batch]:
    """Opens the records of a phase."""
    return train_batches(
        phase.records,
        seq_length=phase.seq_length,
        max_predictions=phase.max_predictions,
        global_batch=rows,
        masking=masking,
        seed=0,
        start=start,
    )


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Returns the CPU time of all threads of this process while `work` runs."""
    before = time.process_time()
    work()
    return time.process_time() - before


def rows_per_cpu_second(phase: PhaseConfig, rows: int, rounds: int) -> dict[str, float]:
    """Measures each kind of masking, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in MASKING}
    count = max(8, 16_384 // rows)
    for round in range(rounds + 1):
        for name, masking in MASKING.items():
            stream = batches(phase, masking, rows, start=round * count)
            next(stream)
            # A stream works ahead of its reader; over many batches that evens out.
            seconds = cpu_seconds(lambda s=stream: list(itertools.islice(s, count)))
            if round:  # the first warms up
                rates[name].append(count * rows / seconds)
    return {name: statistics.median(values) for name, values in rates.items()}


def seek_seconds(phase: PhaseConfig, rows: int) -> dict[str, float]:
    """Measures how long the first batch takes, near and far."""
    found = {}
    for start in (0, FAR):
        times = []
        for _ in range(5):
            before = time.perf_counter()
            next(batches(phase, MaskingConfig(), rows, start))
            times.append(time.perf_counter() - before)
        found[f"batch_{start}"] = statistics.median(times)
    return found


def share_of_step(config: PretrainConfig, index: int, rounds: int) -> dict[str, float]:
    """Measures a batch and a training step on it in turns."""
    phase = config.phases[index]
    mesh = make_mesh(ParallelConfig(), jax.local_devices()[:1])
    objective = pretraining(config.model)
    state = initial_state(config, objective)
    stream = batches(phase, config.masking, phase.global_batch, 0)
    batch = put_batch(next(stream), mesh)
    train = compile_step(config, objective, index, lay_out(objective, mesh), state, batch)
    jax.block_until_ready(train(state, batch))
    inputs, steps = [], []
    for _ in range(rounds):
        inputs.append(cpu_seconds(lambda: list(itertools.islice(stream, 8))) / 8)
        steps.append(cpu_seconds(lambda: jax.block_until_ready(train(state, batch))))
    return {
        "batch_cpu_seconds": statistics.median(inputs),
        "step_cpu_seconds": statistics.median(steps),
        "share": statistics.median(inputs) / statistics.median(steps),
    }


def main() -> None:
    """Measures, prints and writes results.json."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=256, help="rows of a batch for the rates")
    args = parser.parse_args()
    config, _ = resolve(load_config(args.config, []))
    results: dict[str, Any] = {"machine": machine.describe(), "rows": args.rows, "phases": []}
    for index, phase in enumerate(config.phases):
        before = machine.peak_bytes()
        found = {
            "seq_length": phase.seq_length,
            "rows_per_cpu_second": rows_per_cpu_second(phase, args.rows, args.rounds),
            "memory_mb": (machine.peak_bytes() - before) / 1e6,
            "seek_seconds": seek_seconds(phase, args.rows),
            "step": share_of_step(config, index, args.rounds) | {"rows": phase.global_batch},
        }
        results["phases"].append(found)
        print(json.dumps(found, indent=1), flush=True)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
