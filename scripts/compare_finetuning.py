"""Fine-tunes on SQuAD in PyTorch as `bert-lamb squad train` does, and times steps of both in turns.

    python scripts/compare_finetuning.py --config=configs/squad_split_cpu.py --output=DIR \
        --config.init_from=FOLDER --config.train=TRAIN.json --config.dev=DEV.json

FOLDER is a BERT in Hugging Face's form. PyTorch gets the same rows in the same order, the same
rates and the same decay (tests/reference/finetune_torch.py). Writes results.json; with --seeds, the
official scores of PyTorch's runs too, to be compared with those in our runs' metrics.jsonl. Needs
`make parity-install`.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine

from bert_lamb.cli.overrides import load_config_as
from bert_lamb.config import ParallelConfig
from bert_lamb.finetuning import squad
from bert_lamb.finetuning.config import SquadConfig
from bert_lamb.finetuning.task import Finetuning
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.squad.features import make_features
from bert_lamb.squad.predicting import in_order, predict
from bert_lamb.squad.reading import read_dataset
from bert_lamb.training.phases import schedule
from bert_lamb.training.program import compile_step
from bert_lamb.training.start import initial_state, lay_out
from tests.reference import finetune_torch

Batches = Iterator[dict[str, np.ndarray]]


def batches(task: Finetuning) -> Batches:
    """Yields the batches of a run."""
    rows = np.arange(task.run.phases[0].global_batch)
    return task.batches(0, 0, rows)


def reference(task: Finetuning, folder: str) -> tuple[Any, Any]:
    """Returns PyTorch's model and optimizer."""
    shape, optimizer = task.config.model, task.run.optimizer
    if optimizer.name != "adamw" or not optimizer.bias_correction:
        raise SystemExit("PyTorch has AdamW with bias correction only; set optimizer accordingly")
    if shape.activation != "gelu":
        raise SystemExit(f"model.activation = {shape.activation}: the comparison is for gelu")
    model = finetune_torch.build(
        folder, (shape.hidden_dropout, shape.attention_dropout), task.run.seed
    )
    b = (optimizer.b1, optimizer.b2)
    return model, finetune_torch.make_optimizer(model, optimizer.weight_decay, b, optimizer.eps)


def rates(task: Finetuning) -> list[float]:
    """Returns the learning rate of every step."""
    phase = task.run.phases[0]
    return np.asarray(schedule(phase)(jnp.arange(phase.steps))).tolist()


def time_steps(task: Finetuning, folder: str, rounds: int, steps: int) -> dict[str, Any]:
    """Times steps of both sides in turns; medians over the rounds, seconds a step."""
    mesh = make_mesh(ParallelConfig(), jax.local_devices()[:1])
    layout = lay_out(task.objective, mesh)
    state = initial_state(task.run, task.objective)
    stream = batches(task)
    first = put_batch(next(stream), mesh)
    step = compile_step(task.run, task.objective, 0, layout, state, first)
    state, _ = jax.block_until_ready(step(state, first))
    model, optimizer = reference(task, folder)
    clip = task.run.optimizer.clip_norm or float("inf")
    finetune_torch.train(model, optimizer, stream, rates(task)[:1], clip)
    ours, theirs = [], []
    for _ in range(rounds):
        made = [next(stream) for _ in range(steps)]
        began = time.perf_counter()
        for batch in made:
            state, _ = step(state, put_batch(batch, mesh))
        jax.block_until_ready(state)
        ours.append((time.perf_counter() - began) / steps)
        _, seconds = finetune_torch.train(model, optimizer, iter(made), rates(task)[:steps], clip)
        theirs.append(statistics.fmean(seconds))
    a, b = statistics.median(ours), statistics.median(theirs)
    return {"ours_seconds": ours, "pytorch_seconds": theirs, "ours": a, "pytorch": b,
            "ratio": a / b}  # fmt: skip


def run_reference(config: SquadConfig, task: Finetuning, folder: str) -> dict[str, Any]:
    """Fine-tunes in PyTorch and returns the official scores."""
    model, optimizer = reference(task, folder)
    began = time.perf_counter()
    clip = task.run.optimizer.clip_norm or float("inf")
    losses, _ = finetune_torch.train(model, optimizer, batches(task), rates(task), clip)
    trained = time.perf_counter() - began
    dataset = read_dataset(config.dev, config.version)
    features = make_features(dataset, task.start.tokenizer, config.features)
    size, batch = len(features), config.evaluation.batch
    blocks = (
        (numbers, *finetune_torch.logits(model, features.rows(numbers)))
        for numbers in (np.arange(i, min(i + batch, size)) for i in range(0, size, batch))
    )
    found = list(predict(dataset, features, *in_order(blocks, features), config.answers))
    scores = squad.score(dataset, found, config.answers.null_threshold).to_dict()
    return {"seed": config.seed, **scores, "last_loss": statistics.fmean(losses[-20:]),
            "steps": len(losses), "train_seconds": trained}  # fmt: skip


def main() -> None:
    """Measures, prints and writes results.json."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], allow_abbrev=False,
        epilog="Keys of the config are set as --config.KEY=VALUE.",
    )  # fmt: skip
    parser.add_argument("--config", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison of speed")
    parser.add_argument("--steps", type=int, default=4, help="of each side in a round")
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="runs of PyTorch to score")
    args, overrides = parser.parse_known_args()
    config = load_config_as(SquadConfig, args.config, overrides)
    task, lines = squad.prepare(config, args.output)
    print("\n".join(lines))
    results: dict[str, Any] = {"machine": machine.describe(), "runs": []}
    if args.rounds:
        results["speed"] = time_steps(task, config.init_from, args.rounds, args.steps)
        print(json.dumps(results["speed"]))
    args.output.mkdir(parents=True, exist_ok=True)
    for seed in args.seeds:
        seeded = dataclasses.replace(config, seed=seed)
        one, _ = squad.prepare(seeded, args.output)
        results["runs"].append(run_reference(seeded, one, config.init_from))
        print(json.dumps(results["runs"][-1]))
        (args.output / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (args.output / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
