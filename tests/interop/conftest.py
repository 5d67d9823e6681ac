"""A folder in the Hugging Face form, written by hand with NumPy: no PyTorch is needed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_lamb.interop import InteropError

Tensors = dict[str, np.ndarray]
# Unequal sizes, so that no two axes can be taken for each other unnoticed.
V, D, N, F, T, L = 26, 12, 3, 20, 16, 2
CONFIG: dict[str, Any] = {
    "architectures": ["BertForPreTraining"],
    "attention_probs_dropout_prob": 0.2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.15,
    "hidden_size": D,
    "initializer_range": 0.03,
    "intermediate_size": F,
    "layer_norm_eps": 1e-10,
    "max_position_embeddings": T,
    "model_type": "bert",
    "num_attention_heads": N,
    "num_hidden_layers": L,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": V,
}
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "dog",
    "##s",
    "caf",
    "##e",
    "##\u00e9",
]
TOKENS += list("abcdefghijklmno")
SETTINGS: dict[str, Any] = {
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "tokenizer_class": "BertTokenizer",
    "cls_token": "[CLS]",
    "model_max_length": 512,
}


def encoder_tensors() -> Tensors:
    """Random tensors of an encoder with pooler under the names of BertForPreTraining."""
    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (V, D),
        "bert.embeddings.position_embeddings.weight": (T, D),
        "bert.embeddings.token_type_embeddings.weight": (2, D),
        "bert.embeddings.LayerNorm.weight": (D,),
        "bert.embeddings.LayerNorm.bias": (D,),
        "bert.pooler.dense.weight": (D, D),
        "bert.pooler.dense.bias": (D,),
    }
    for layer in range(L):
        start = f"bert.encoder.layer.{layer}"
        for dense, outputs, inputs in [
            ("attention.self.query", D, D),
            ("attention.self.key", D, D),
            ("attention.self.value", D, D),
            ("attention.output.dense", D, D),
            ("intermediate.dense", F, D),
            ("output.dense", D, F),
        ]:
            shapes[f"{start}.{dense}.weight"] = (outputs, inputs)
            shapes[f"{start}.{dense}.bias"] = (outputs,)
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{start}.{norm}.weight"] = shapes[f"{start}.{norm}.bias"] = (D,)
    rng = np.random.default_rng(5)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")


def write_vocab(folder: Path, tokens: list[str]) -> None:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def write_shards(folder: Path, tensors: Tensors, shards: int = 3) -> dict[str, str]:
    """Writes tensors as shards with their index, and returns the index's weight_map."""
    names = sorted(tensors)
    placed = {
        name: f"model-{1 + i % shards:05}-of-{shards:05}.safetensors"
        for i, name in enumerate(names)
    }
    for shard in set(placed.values()):
        part = {name: tensors[name] for name in names if placed[name] == shard}
        save_file(part, folder / shard, metadata={"format": "pt"})
    write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": placed},
    )
    return placed


def refused(read: Callable[[], object], *parts: object) -> str:
    """Returns the message of the InteropError that `read` raises: one line with all `parts`."""
    with pytest.raises(InteropError) as caught:
        read()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert str(part) in message, f"{part} is not in: {message}"
    return message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole folder; tests spoil it."""
    path = tmp_path / "model"
    path.mkdir()
    write_json(path / "config.json", CONFIG)
    write_json(path / "tokenizer_config.json", SETTINGS)
    write_vocab(path, TOKENS)
    save_file(encoder_tensors(), path / "model.safetensors", metadata={"format": "pt"})
    return path
