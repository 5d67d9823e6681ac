"""Folders that transformers wrote: our encoder gives its numbers, our tokenizer its ids."""

import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.interop import read_encoder, read_model_config, read_tokenizer
from bert_lamb.model import encode
from tests.interop.conftest import TOKENS, refused, write_json

torch = pytest.importorskip("torch", reason="the reference of the parity tests: [parity] extra")
transformers = pytest.importorskip(
    "transformers", reason="the reference of the parity tests: [parity] extra"
)

ATOL = 1e-5
B, T = 3, 24
ENCODE = jax.jit(encode, static_argnums=0)  # compiled once for all folders of one shape


def reference(kind: str, **changes):
    """A model of transformers with every parameter random, norms and biases included."""
    values = {
        "vocab_size": 60, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 80, "max_position_embeddings": 32, "attn_implementation": "eager",
    }  # fmt: skip
    model = getattr(transformers, kind)(transformers.BertConfig(**values | changes)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            center = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(center + 0.1 * noise)
    return model


def tokens(vocab_size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    length = np.array([T, T // 2, 5])
    mask = np.arange(T) < length[:, None]
    return {
        "input_ids": np.where(mask, rng.integers(1, vocab_size, (B, T)), 0),
        "input_mask": mask.astype(np.int64),
        "segment_ids": ((np.arange(T) >= length[:, None] // 2) & mask).astype(np.int64),
    }


def assert_same(model, folder, *, prefix: str = "bert.") -> None:
    """Compares sequence and pooled token of `model` with ours from `folder`."""
    config = replace(read_model_config(folder), scan_layers=True)
    params, report = read_encoder(folder, config)
    assert all(name.startswith(prefix) for name in report.used)
    has_pooler = report.has_pooler
    if not has_pooler:  # encode() wants one
        D = config.hidden_size
        params["pooler"] = {"kernel": np.zeros((D, D), "f"), "bias": np.zeros(D, "f")}
    batch = tokens(config.vocab_size)
    ours = {key: jnp.asarray(value, jnp.int32) for key, value in batch.items()}
    with jax.default_matmul_precision("highest"):
        sequence, pooled = ENCODE(config, params, ours)
    with torch.no_grad():
        output = getattr(model, "bert", model)(
            input_ids=torch.from_numpy(batch["input_ids"]),
            attention_mask=torch.from_numpy(batch["input_mask"]),
            token_type_ids=torch.from_numpy(batch["segment_ids"]),
        )
    # Both compute padding's places too, from the same inputs.
    np.testing.assert_allclose(sequence, output.last_hidden_state.numpy(), rtol=0, atol=ATOL)
    assert has_pooler == (output.pooler_output is not None)
    if has_pooler:
        np.testing.assert_allclose(pooled, output.pooler_output.numpy(), rtol=0, atol=ATOL)


@pytest.mark.parametrize(
    ("kind", "prefix", "left_out"),
    [
        ("BertForPreTraining", "bert.", {"cls.predictions.bias", "cls.seq_relationship.weight"}),
        ("BertForQuestionAnswering", "bert.", {"qa_outputs.weight", "qa_outputs.bias"}),
        ("BertForSequenceClassification", "bert.", {"classifier.weight", "classifier.bias"}),
        ("BertForMaskedLM", "bert.", {"cls.predictions.transform.LayerNorm.weight"}),
        ("BertModel", "", set()),
    ],
)
def test_the_encoder_of_any_model_gives_the_same_numbers(tmp_path, kind, prefix, left_out):
    model = reference(kind)
    model.save_pretrained(tmp_path)
    assert_same(model, tmp_path, prefix=prefix)
    _, report = read_encoder(tmp_path, read_model_config(tmp_path))
    assert left_out <= set(report.left_out)
    assert len(report.used) + len(report.left_out) == len(model.state_dict()) - sum(
        name.startswith("cls.predictions.decoder.") for name in model.state_dict()
    )  # tied to other tensors, and therefore not in the file


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh"])
def test_p74_the_activation_of_the_file_is_the_one_computed(tmp_path, activation):
    model = reference("BertModel", hidden_act=activation, layer_norm_eps=1e-5)
    model.save_pretrained(tmp_path)
    assert_same(model, tmp_path, prefix="")
    model.config.hidden_act = "gelu"
    model.config.save_pretrained(tmp_path)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same(model, tmp_path, prefix="")


def test_shards_as_transformers_cuts_them_are_read(tmp_path):
    model = reference("BertForPreTraining")
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same(model, tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_as_pytorch_saves_it_is_read(tmp_path, dtype):
    half = reference("BertModel").to(getattr(torch, dtype))
    half.save_pretrained(tmp_path)
    assert_same(half.float(), tmp_path, prefix="")


def test_the_command_that_a_refusal_of_pickled_weights_names_converts_them(tmp_path):
    model = reference("BertForPreTraining")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    config = read_model_config(tmp_path)
    message = refused(lambda: read_encoder(tmp_path, config), "pytorch_model.bin")
    python, *arguments = shlex.split(message[message.index("python -c") :])
    assert python == "python"
    subprocess.run([sys.executable, *arguments], check=True)
    assert_same(model, tmp_path)


TEXTS = [
    "The dogs, a caf\u00e9; d\u00e9j\u00e0 caf e\u0301.",
    "ABC abc \u00c9 na\u00efve",
    "\u4e2d\u6587dog",
    "",
]


@pytest.mark.parametrize("fast", [True, False], ids=["tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": True},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
    ],
    ids=lambda options: "-".join(f"{key}={value}" for key, value in options.items()),
)
def test_p89_ids_equal_those_of_transformers(tmp_path, fast, options):
    vocabulary = [
        *TOKENS,
        "\u00e9",
        "\u00ef",
        "##\u00ef",
        "\u4e2d",
        "##b",
        "##c",
        ",",
        ".",
        "caf\u00e9",
    ]
    (tmp_path / "source.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    folder = tmp_path / "model"
    reference_tokenizer = transformers.BertTokenizerFast(str(tmp_path / "source.txt"), **options)
    reference_tokenizer.save_pretrained(folder)
    write_json(folder / "config.json", transformers.BertConfig().to_dict())
    if not fast:
        (folder / "tokenizer.json").unlink()
    expected = reference_tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
    assert read_tokenizer(folder).encode_batch(TEXTS) == expected


def test_a_folder_of_model_and_tokenizer_together_is_read(tmp_path, folder):
    target = tmp_path / "both"
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(target)
    assert not (target / "tokenizer.json").exists()  # this class writes vocab.txt alone
    shutil.copy(folder / "config.json", target)
    shutil.copy(folder / "model.safetensors", target)
    assert read_tokenizer(target).hash == read_tokenizer(folder).hash
    read_encoder(target, read_model_config(target))
