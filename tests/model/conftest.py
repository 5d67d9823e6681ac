"""Small models and random batches for the tests of the model."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.config import ModelConfig
from bert_lamb.model import Batch

MakeBatch = Callable[..., Batch]


@pytest.fixture
def small() -> ModelConfig:
    """Two layers, two heads, a vocabulary that needs padding, dropout on."""
    return ModelConfig(
        vocab_size=90,
        num_layers=2,
        hidden_size=32,
        num_heads=2,
        intermediate_size=64,
        max_positions=32,
        vocab_multiple=64,
    )


@pytest.fixture
def make_batch() -> MakeBatch:
    """Draws a batch with rows of different lengths; some predictions have weight 0."""

    def make(config: ModelConfig, B: int, T: int, P: int, seed: int = 0) -> Batch:
        rng = np.random.default_rng(seed)
        length = rng.integers(T // 2, T + 1, size=B)
        length[0] = T
        mask = np.arange(T) < length[:, None]
        segments = (np.arange(T) >= length[:, None] // 2) & mask
        positions = np.stack([rng.permutation(T // 2 - 1)[:P] + 1 for _ in range(B)])
        weights = np.arange(P) < rng.integers(1, P + 1, size=B)[:, None]
        integers = {
            "input_ids": np.where(mask, rng.integers(1, config.vocab_size, size=(B, T)), 0),
            "input_mask": mask,
            "segment_ids": segments,
            "masked_lm_positions": np.where(weights, positions, 0),
            "masked_lm_ids": np.where(weights, rng.integers(1, config.vocab_size, (B, P)), 0),
            "next_sentence_labels": rng.integers(0, 2, size=B),
            "row": np.arange(B),
        }
        batch = {key: jnp.asarray(value, jnp.int32) for key, value in integers.items()}
        batch["masked_lm_weights"] = jnp.asarray(weights, jnp.float32)
        batch["next_sentence_weights"] = jnp.ones((B,), jnp.float32)
        return batch

    return make
