"""The tensors of a folder: what comes out where, and every fault by the tensor's name."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from bert_lamb.config import ModelConfig
from bert_lamb.interop import InteropError, read_encoder, read_model_config
from bert_lamb.model import init
from tests.interop.conftest import (
    D,
    F,
    L,
    N,
    T,
    Tensors,
    V,
    encoder_tensors,
    refused,
    write_json,
    write_shards,
)

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 90868376\n"
OURS = ModelConfig(
    vocab_size=V, num_layers=L, hidden_size=D, num_heads=N, intermediate_size=F, max_positions=T
)
HEADS = {
    "cls.predictions.bias": (V,),
    "cls.predictions.decoder.weight": (V, D),
    "cls.predictions.decoder.bias": (V,),
    "cls.predictions.transform.dense.weight": (D, D),
    "cls.predictions.transform.dense.bias": (D,),
    "cls.predictions.transform.LayerNorm.weight": (D,),
    "cls.predictions.transform.LayerNorm.bias": (D,),
    "cls.seq_relationship.weight": (2, D),
    "cls.seq_relationship.bias": (2,),
    "qa_outputs.weight": (2, D),
    "qa_outputs.bias": (2,),
    "classifier.weight": (3, D),
    "classifier.bias": (3,),
}


def write(folder: Path, tensors: Tensors) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def read(folder: Path):
    return read_encoder(folder, read_model_config(folder))


def equal(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b))
    )


def test_the_tree_is_that_of_the_model(folder):
    config = read_model_config(folder)
    params, report = read(folder)
    own = jax.eval_shape(lambda: init(config, jax.random.key(0)))
    own = {part: own[part] for part in ("embeddings", "layers", "pooler")}
    assert jax.tree.map(lambda x: (x.shape, x.dtype), params) == jax.tree.map(
        lambda x: (x.shape, x.dtype), own
    )
    assert report.has_pooler
    assert report.left_out == ()
    assert report.used == tuple(sorted(encoder_tensors()))
    assert str(report) == (
        f"model.safetensors: {len(report.used)} tensors read (F32), with pooler; left out: none"
    )


def test_each_number_stands_where_the_model_looks_for_it(folder):
    params, _ = read(folder)
    tensors = encoder_tensors()
    word = params["embeddings"]["word"]["embedding"]
    assert np.array_equal(word[:V], tensors["bert.embeddings.word_embeddings.weight"])
    assert not word[V:].any()
    position = params["embeddings"]["position"]["embedding"]
    assert np.array_equal(position, tensors["bert.embeddings.position_embeddings.weight"])
    segment = params["embeddings"]["segment"]["embedding"]
    assert np.array_equal(segment, tensors["bert.embeddings.token_type_embeddings.weight"])
    attention, mlp = params["layers"]["attention"], params["layers"]["mlp"]
    norms = {
        "embeddings": params["embeddings"]["norm"],
        "encoder.layer.{}.attention.output": params["layers"]["attention_norm"],
        "encoder.layer.{}.output": params["layers"]["mlp_norm"],
    }
    for layer in range(L):
        start = f"bert.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            weight, bias = (
                tensors[f"{start}.attention.self.{part}.{x}"] for x in ("weight", "bias")
            )
            assert np.array_equal(attention[part]["kernel"][layer], weight)
            assert np.array_equal(attention[part]["bias"][layer], bias.reshape(N, D // N))
        for theirs, ours in {
            "attention.output.dense": attention["out"],
            "intermediate.dense": mlp["up"],
            "output.dense": mlp["down"],
        }.items():
            assert np.array_equal(ours["kernel"][layer], tensors[f"{start}.{theirs}.weight"].T)
            assert np.array_equal(ours["bias"][layer], tensors[f"{start}.{theirs}.bias"])
    for theirs, ours in norms.items():
        for key, name in {"scale": "weight", "bias": "bias"}.items():
            layers = [
                tensors[f"bert.{theirs.format(layer)}.LayerNorm.{name}"] for layer in range(L)
            ]
            assert np.array_equal(ours[key], np.stack(layers) if "{}" in theirs else layers[0])
    assert np.array_equal(params["pooler"]["kernel"], tensors["bert.pooler.dense.weight"].T)
    assert np.array_equal(params["pooler"]["bias"], tensors["bert.pooler.dense.bias"])


def test_the_table_is_padded_as_the_caller_computes_it(folder):
    config = replace(read_model_config(folder), vocab_multiple=1)
    params, _ = read_encoder(folder, config)
    assert params["embeddings"]["word"]["embedding"].shape == (V, D)


def test_names_without_bert_in_front_give_the_same(folder):
    expected, _ = read(folder)
    write(folder, {name.removeprefix("bert."): x for name, x in encoder_tensors().items()})
    params, _ = read(folder)
    assert equal(params, expected)


def test_p73_norms_named_gamma_and_beta_give_the_same(folder):
    expected, _ = read(folder)
    legacy = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): x
        for name, x in encoder_tensors().items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in legacy
    write(folder, legacy)
    params, _ = read(folder)
    assert equal(params, expected)


def test_shards_give_the_same_as_one_file(folder):
    expected, _ = read(folder)
    (folder / "model.safetensors").unlink()
    placed = write_shards(folder, encoder_tensors())
    params, report = read(folder)
    assert equal(params, expected)
    assert set(report.files) == set(placed.values())


@pytest.mark.parametrize(
    ("name", "dtype"), [("F16", np.float16), ("BF16", ml_dtypes.bfloat16)], ids=["F16", "BF16"]
)
def test_half_precision_is_widened_exactly(folder, name, dtype):
    halves = {key: x.astype(dtype) for key, x in encoder_tensors().items()}
    write(folder, {key: x.astype(np.float32) for key, x in halves.items()})
    expected, _ = read(folder)
    write(folder, halves)
    params, report = read(folder)
    assert equal(params, expected)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    assert report.dtypes == (name,)


def test_a_file_without_pooler_gives_none(folder):
    write(folder, {name: x for name, x in encoder_tensors().items() if "pooler" not in name})
    params, report = read(folder)
    assert not report.has_pooler
    assert set(params) == {"embeddings", "layers"}


def test_p71_what_an_encoder_does_without_is_named_in_the_report(folder):
    expected, _ = read(folder)
    extra = {name: np.ones(shape, np.float32) for name, shape in HEADS.items()}
    extra["bert.embeddings.position_ids"] = np.arange(T)[None]
    write(folder, encoder_tensors() | extra)
    params, report = read(folder)
    assert equal(params, expected)
    assert set(report.left_out) == set(extra)
    assert all(name in str(report) for name in extra)


def test_p71_each_missing_tensor_is_named(folder):
    tensors = encoder_tensors()
    for name in tensors:
        write(folder, {other: x for other, x in tensors.items() if other != name})
        message = refused(lambda: read(folder), f"missing: {name}.")
        assert not any(other in message for other in tensors if other != name)


def test_p71_each_renamed_tensor_is_named_twice(folder):
    tensors = encoder_tensors()
    for name in tensors:
        spoilt = {(f"{old}_" if old == name else old): x for old, x in tensors.items()}
        write(folder, spoilt)
        refused(lambda: read(folder), f"missing: {name};", f"unknown: {name}_.")


def test_p71_all_faults_stand_in_one_message(folder):
    tensors = encoder_tensors()
    del tensors["bert.embeddings.LayerNorm.bias"]
    tensors["bert.encoder.layer.1.dense_act.weight"] = np.ones(3, np.float32)
    tensors["bert.encoder.layer.0.output.dense.weight"] = np.ones((F, D), np.float32)
    tensors["bert.pooler.dense.bias"] = np.arange(D)
    tensors["lm_head.weight"] = np.ones(3, np.float32)
    tensors["bert.encoder.layer.0.output.LayerNorm.gamma"] = np.ones(D, np.float32)
    write(folder, tensors)
    refused(
        lambda: read(folder),
        folder,
        "missing: bert.embeddings.LayerNorm.bias;",
        "unknown: bert.encoder.layer.1.dense_act.weight;",
        "unknown: lm_head.weight (",
        f"of shape [{F}, {D}], expected [{D}, {F}]: bert.encoder.layer.0.output.dense.weight",
        "of dtype I64, expected one of F32, F16, BF16: bert.pooler.dense.bias",
        "twice: bert.encoder.layer.0.output.LayerNorm.gamma and "
        "bert.encoder.layer.0.output.LayerNorm.weight",
    )


def test_p71_the_same_fault_of_all_layers_is_one_name(folder):
    config = replace(read_model_config(folder), num_layers=4, intermediate_size=F + 1)
    refused(
        lambda: read_encoder(folder, config),
        "bert.encoder.layer.[2-3].attention.self.query.weight",
        f"of shape [{F}], expected [{F + 1}]: bert.encoder.layer.[0-1].intermediate.dense.bias",
    )


def test_p71_layers_beyond_the_config_are_unknown(folder):
    config = replace(read_model_config(folder), num_layers=1)
    refused(lambda: read_encoder(folder, config), "unknown: ", "bert.encoder.layer.1.output.dense.")


def test_a_depth_that_no_file_can_have_is_refused_at_once(folder):
    config = replace(read_model_config(folder), num_layers=10**12)
    refused(lambda: read_encoder(folder, config), "num_layers = 1000000000000", "num_hidden_layers")


def test_double_precision_is_refused(folder):
    tensors = encoder_tensors()
    name = "bert.embeddings.word_embeddings.weight"
    tensors[name] = tensors[name].astype(np.float64)
    write(folder, tensors)
    refused(lambda: read(folder), f"of dtype F64, expected one of F32, F16, BF16: {name}")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused_by_name(folder, bad):
    tensors = encoder_tensors()
    first, second = "bert.encoder.layer.1.output.dense.weight", "bert.pooler.dense.bias"
    tensors[first][2, 3] = tensors[first][4, 5] = tensors[second][0] = bad
    write(folder, tensors)
    refused(lambda: read(folder), f"{first} (2 of {D * F})", f"{second} (1 of {D})")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    refused(lambda: read_encoder(tmp_path / "absent", OURS), "absent", "no such folder")
    (tmp_path / "file").touch()
    refused(lambda: read_encoder(tmp_path / "file", OURS), "a file, not a folder")
    refused(lambda: read_encoder("bert-base-uncased", OURS), "nothing is downloaded")


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    refused(lambda: read(folder), folder, "model.safetensors", "model.safetensors.index.json")


def test_pickled_weights_are_not_touched(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    refused(lambda: read(folder), folder / "pytorch_model.bin", "save_file", "weights_only=True")


def test_one_file_and_an_index_together_are_refused(folder):
    write_shards(folder, encoder_tensors())
    refused(lambda: read(folder), "model.safetensors.index.json", "expected one of them")


def test_a_git_lfs_pointer_is_recognized(folder):
    (folder / "model.safetensors").write_bytes(POINTER)
    refused(lambda: read(folder), folder / "model.safetensors", "git lfs pull")


@pytest.fixture
def index(folder) -> Path:
    """The index of a folder of three shards."""
    (folder / "model.safetensors").unlink()
    write_shards(folder, encoder_tensors())
    return folder / "model.safetensors.index.json"


def test_a_missing_shard_is_named(folder, index):
    shard = folder / "model-00002-of-00003.safetensors"
    shard.unlink()
    refused(lambda: read(folder), index, shard.name)


def test_a_pointer_in_place_of_a_shard_is_named(folder, index):
    shard = folder / "model-00002-of-00003.safetensors"
    shard.write_bytes(POINTER)
    refused(lambda: read(folder), shard, "git lfs pull")


def test_an_index_that_disagrees_with_its_shards_is_refused(folder, index):
    content = json.loads(index.read_text())
    dropped = "bert.pooler.dense.bias"
    shard = content["weight_map"].pop(dropped)
    content["weight_map"]["bert.ghost"] = shard
    write_json(index, content)
    refused(
        lambda: read(folder),
        f"bert.ghost is not in {shard}",
        f"{dropped} in {shard} is not listed",
    )


@pytest.mark.parametrize(
    ("weight_map", "part"),
    [
        (None, "weight_map = null"),
        ({}, "weight_map = {}"),
        (["model-00001-of-00003.safetensors"], "weight_map = ["),
        ({"bert.x": 3}, "weight_map['bert.x'] = 3"),
        ({"bert.x": "../elsewhere.safetensors"}, "../elsewhere.safetensors"),
        ({"bert.x": "/etc/passwd"}, "/etc/passwd"),
        ({"bert.x": ".."}, "names .."),
    ],
)
def test_an_index_of_another_form_is_refused(folder, index, weight_map, part):
    write_json(index, {"weight_map": weight_map})
    refused(lambda: read(folder), index, part)


def test_an_index_that_is_not_json_is_refused(folder, index):
    index.write_text("{")
    refused(lambda: read(folder), index, "not JSON")


WHOLE = save(encoder_tensors(), metadata={"format": "pt"})
HEADER = 8 + int.from_bytes(WHOLE[:8], "little")


@given(length=st.integers(0, len(WHOLE) - 1) | st.integers(0, 16) | st.just(HEADER))
@settings(max_examples=150, deadline=None)
def test_a_truncated_file_is_named_wherever_it_ends(length, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut")
    file = folder / "model.safetensors"
    file.write_bytes(WHOLE[:length])
    refused(lambda: read_encoder(folder, OURS), file, f"it has {length} bytes")


@given(
    changes=st.dictionaries(st.integers(0, HEADER - 1), st.integers(0, 255), min_size=1, max_size=4)
)
@settings(max_examples=150, deadline=None)
def test_a_damaged_header_gives_a_message_or_changes_nothing(changes, tmp_path_factory):
    damaged = bytearray(WHOLE)
    for at, byte in changes.items():
        damaged[at] = byte
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "model.safetensors").write_bytes(damaged)
    message = None
    try:
        params, _ = read_encoder(folder, OURS)
    except InteropError as error:
        message = str(error)
    assert str(folder) in message if message else set(params) == {"embeddings", "layers", "pooler"}


def test_neither_pytorch_nor_transformers_is_loaded(folder):
    code = (
        "import sys; from bert_lamb.interop import *;"
        f"read_encoder({str(folder)!r}, read_model_config({str(folder)!r}));"
        f"read_tokenizer({str(folder)!r});"
        "print([n for n in ('torch', 'transformers', 'tensorflow') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
