"""A pretrained model, and questions and texts that a tiny one can learn in seconds."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bert_lamb.config import PretrainConfig, from_dict
from bert_lamb.finetuning.config import SquadConfig
from bert_lamb.training.pretraining import pretrain

NAMES = ["print", "import", "class", "return", "lambda", "while", "global", "raise"]


@pytest.fixture(scope="session")
def pretrained(small: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps: its weights are real, and hardly better than random ones."""
    workdir = tmp_path_factory.mktemp("pretrained")
    phase = small["phases"][0] | {"steps": 2, "warmup_steps": 1}
    config = from_dict(PretrainConfig, small | {"phases": [phase]})
    pretrain(config, workdir)
    return workdir


def squad_file(path: Path, questions: int, seed: int, version: str = "1.1") -> str:
    """Writes questions whose answer is the word behind "is", and of v2.0 a third without one."""
    rng = random.Random(seed)
    paragraphs = []
    for number in range(questions):
        before = rng.choices(["the", "a", "in", "of", "and"], k=rng.randint(1, 6))
        word = rng.choice(NAMES)
        without = version == "2.0" and number % 3 == 0
        context = " ".join([*before, "was" if without else "is", word, "not"])
        answers = [] if without else [{"text": word, "answer_start": context.index(word)}]
        qa: dict[str, Any] = {"id": f"q{seed}-{number}", "question": "what ?", "answers": answers}
        if version == "2.0":
            qa["is_impossible"] = without
        paragraphs.append({"context": context, "qas": [qa]})
    data = {"version": version, "data": [{"title": "made", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data))
    return str(path)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of questions, by version and split."""
    folder = tmp_path_factory.mktemp("squad")
    return {
        f"{version} {split}": squad_file(folder / f"{split}-{version}.json", count, seed, version)
        for version in ("1.1", "2.0")
        for split, count, seed in (("train", 160, 1), ("dev", 41, 2))
    }


@pytest.fixture(scope="session")
def settings(pretrained: Path, data: dict[str, str]) -> dict[str, Any]:
    """Values of a configuration; tests change copies of it."""
    return {
        "seed": 7,
        "init_from": str(pretrained),
        "train": data["1.1 train"],
        "dev": data["1.1 dev"],
        "model": {"hidden_dropout": 0.1, "attention_dropout": 0.1, "scan_layers": True},
        "features": {"seq_length": 24, "stride": 8, "max_query": 4},
        "epochs": 1.0,
        "global_batch": 16,
        "peak_lr": 1e-2,
        "optimizer": {"name": "adamw", "weight_decay": 0.01},
        "checkpoint": {"every_steps": 2, "keep": 3},
        "evaluation": {"batch": 16},
        "logging": {"every_steps": 1, "tensorboard": False},
    }


def squad_config(settings: dict[str, Any], **changes: Any) -> SquadConfig:
    return from_dict(SquadConfig, settings | changes)
