"""The independent NumPy twin, and a BERT-shaped tree of parameters."""

import numpy as np
import pytest

from tests.reference import large_batch

LAYERS, WIDTH, HEADS, FEED, VOCAB, POSITIONS = 12, 8, 2, 16, 20, 6


@pytest.fixture(scope="session")
def twin():
    """tests/reference/large_batch.py."""
    return large_batch


@pytest.fixture
def bert_params():
    """Parameters with the paths of BERT, layers stacked on the first axis; all norms differ."""
    rng = np.random.default_rng(0)
    L, D, N, H, F = LAYERS, WIDTH, HEADS, WIDTH // HEADS, FEED

    def draw(*shape):
        return (rng.normal(size=shape) * rng.uniform(0.1, 1.0)).astype(np.float32)

    def dense(*shape, bias):
        return {"kernel": draw(*shape), "bias": draw(*bias)}

    def norm(*shape):
        return {"scale": 1 + draw(*shape), "bias": draw(*shape)}

    heads = {name: dense(L, D, N, H, bias=(L, N, H)) for name in ("query", "key", "value")}
    layers = {
        "attention": {**heads, "out": dense(L, N, H, D, bias=(L, D))},
        "attention_norm": norm(L, D),
        "mlp": {"up": dense(L, D, F, bias=(L, F)), "down": dense(L, F, D, bias=(L, D))},
        "mlp_norm": norm(L, D),
    }
    depth = np.geomspace(1, 0.01, L)  # each layer a scale of its own
    layers = {name: _scaled(group, depth) for name, group in layers.items()}
    return {
        "embeddings": {
            "word": {"embedding": draw(VOCAB, D)},
            "position": {"embedding": draw(POSITIONS, D)},
            "type": {"embedding": draw(2, D)},
            "norm": norm(D),
        },
        "layers": layers,
        "pooler": dense(D, D, bias=(D,)),
        "mlm": {"transform": dense(D, D, bias=(D,)), "norm": norm(D), "bias": draw(VOCAB)},
        "nsp": dense(D, 2, bias=(2,)),
    }


def _scaled(group, depth):
    if isinstance(group, dict):
        return {name: _scaled(item, depth) for name, item in group.items()}
    return (group * depth.reshape((-1,) + (1,) * (group.ndim - 1))).astype(np.float32)


@pytest.fixture
def stacked():
    """Declares the layers' first axis, as a prefix of `bert_params`."""
    return {"embeddings": 0, "layers": 1, "pooler": 0, "mlm": 0, "nsp": 0}


@pytest.fixture
def small_params(bert_params):
    """A tree of few leaves that still has every kind: for tests that compile for a mesh."""
    embeddings, layers = bert_params["embeddings"], bert_params["layers"]
    return {
        "embeddings": {"word": embeddings["word"], "norm": embeddings["norm"]},
        "layers": {"up": layers["mlp"]["up"], "norm": layers["mlp_norm"]},
    }
