"""config.json: every key that matters, and every value that cannot be represented."""

import pytest

from bert_lamb.config import ModelConfig
from bert_lamb.interop import read_model_config
from tests.interop.conftest import CONFIG, D, F, L, N, T, V, refused, write_json

ABSENT = object()


def test_every_key_arrives(folder):
    assert read_model_config(folder) == ModelConfig(
        vocab_size=V,
        num_layers=L,
        hidden_size=D,
        num_heads=N,
        intermediate_size=F,
        max_positions=T,
        type_vocab_size=2,
        hidden_dropout=0.15,
        attention_dropout=0.2,
        activation="gelu",
        layer_norm_eps=1e-10,
        init_stddev=0.03,
    )


def test_keys_that_old_files_lack_are_those_of_the_published_model(folder):
    optional = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps",
                "initializer_range", "position_embedding_type")  # fmt: skip
    write_json(folder / "config.json", {k: v for k, v in CONFIG.items() if k not in optional})
    config = read_model_config(folder)
    assert config.hidden_dropout == config.attention_dropout == 0.1
    assert config.layer_norm_eps == 1e-12
    assert config.init_stddev == 0.02


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("gelu", "gelu"), ("gelu_new", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh")],
)
def test_activations_are_told_apart(folder, theirs, ours):
    write_json(folder / "config.json", CONFIG | {"hidden_act": theirs})
    assert read_model_config(folder).activation == ours


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("model_type", "roberta", 'model_type = "roberta": expected "bert"'),
        ("model_type", ABSENT, 'model_type = null: expected "bert"'),
        ("hidden_act", "relu", 'hidden_act = "relu": expected one of gelu, gelu_new'),
        ("hidden_act", ["gelu"], 'hidden_act = ["gelu"]: expected one of'),
        ("hidden_act", ABSENT, "hidden_act is missing"),
        ("position_embedding_type", "relative_key", 'expected "absolute"'),
        ("is_decoder", True, "is_decoder = true: expected false"),
        ("add_cross_attention", True, "add_cross_attention = true: expected false"),
        ("is_encoder_decoder", True, "is_encoder_decoder = true: expected false"),
        ("pruned_heads", {"0": [1]}, 'pruned_heads = {"0": [1]}: expected {}'),
        ("quantization_config", {"bits": 4}, "quantization_config = {"),
        ("auto_map", {"AutoModel": "modeling.Alibi"}, "auto_map = {"),
        ("hidden_size", "12", 'hidden_size = "12": expected an integer of at least 1'),
        ("hidden_size", 13, f"hidden_size = 13: expected a multiple of num_attention_heads = {N}"),
        ("num_hidden_layers", 0, "num_hidden_layers = 0: expected an integer of at least 1"),
        ("num_attention_heads", True, "num_attention_heads = true: expected an integer"),
        ("intermediate_size", 20.0, "intermediate_size = 20.0: expected an integer"),
        ("max_position_embeddings", -1, "max_position_embeddings = -1: expected an integer"),
        ("type_vocab_size", ABSENT, "type_vocab_size is missing"),
        ("vocab_size", ABSENT, "vocab_size is missing"),
        ("vocab_size", 0, "vocab_size = 0: expected an integer of at least 1"),
        ("layer_norm_eps", 0, "layer_norm_eps = 0: expected a number of more than 0"),
        ("layer_norm_eps", float("nan"), "layer_norm_eps = NaN: expected a number"),
        ("layer_norm_eps", 10**400, "layer_norm_eps = 1000"),
        ("initializer_range", None, "initializer_range = null: expected a number"),
        ("hidden_dropout_prob", 1, "hidden_dropout_prob = 1: expected a rate in [0, 1)"),
        ("attention_probs_dropout_prob", "0.1", 'prob = "0.1": expected a rate'),
    ],
)
def test_what_cannot_be_represented_is_refused(folder, key, value, expected):
    content = {k: v for k, v in CONFIG.items() if k != key}
    write_json(folder / "config.json", content if value is ABSENT else content | {key: value})
    refused(lambda: read_model_config(folder), folder / "config.json", key, expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not JSON"),
        (b"{'model_type': 'bert'}", "not JSON"),
        (b'{"model_type": "bert"', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "holds list"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
    ids=["empty", "quotes", "cut", "bytes", "deep", "list", "pointer"],
)
def test_a_file_that_is_no_object_is_refused(folder, content, expected):
    (folder / "config.json").write_bytes(content)
    refused(lambda: read_model_config(folder), folder / "config.json", expected)


def test_a_missing_file_is_named(folder):
    (folder / "config.json").unlink()
    refused(lambda: read_model_config(folder), folder / "config.json", "no such file")
