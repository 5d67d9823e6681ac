"""A run small enough for seconds: two phases of rows of 16 and 32 tokens."""

from pathlib import Path
from typing import Any

import pytest

from bert_lamb.config import PretrainConfig, from_dict


@pytest.fixture(scope="session")
def small(records: dict[int, Path]) -> dict[str, Any]:
    """Values of a configuration; tests change copies of it."""
    return {
        "seed": 3,
        "model": {
            "num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32,
            "max_positions": 32, "vocab_multiple": 8,
        },
        "phases": [
            {
                "records": str(records[16] / "train"), "heldout": str(records[16] / "heldout"),
                "seq_length": 16, "global_batch": 8, "steps": 6, "max_predictions": 3,
                "peak_lr": 1e-2, "warmup_steps": 2,
            },
            {
                "records": str(records[32] / "train"), "heldout": str(records[32] / "heldout"),
                "seq_length": 32, "global_batch": 8, "steps": 4, "max_predictions": 5,
                "peak_lr": 5e-3, "warmup_steps": 1, "carry": "weights_and_moments",
            },
        ],
        "checkpoint": {"every_steps": 1, "keep": 3},
        "evaluation": {"batch": 8, "max_examples": 16},
        "logging": {"every_steps": 1, "tensorboard": False},
    }  # fmt: skip


@pytest.fixture
def config(small: dict[str, Any]) -> PretrainConfig:
    return from_dict(PretrainConfig, small)
