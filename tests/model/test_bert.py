"""What the model promises: its parameters, and that switches of speed do not change numbers."""

import dataclasses
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.config import ModelConfig, OptimizerConfig
from bert_lamb.model import apply, encode, init, padded_vocab, pretraining_sums, stacked_axes
from tests.quick import jit


def paths(params):
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def outputs_and_gradients(config, params, batch, key=None):
    def loss(params):
        output = apply(config, params, batch, dropout_key=key)
        sums = pretraining_sums(output, batch)
        mlm = sums.mlm_loss / jnp.maximum(sums.mlm_weight, 1)
        return mlm + sums.nsp_loss / jnp.maximum(sums.nsp_weight, 1), output

    gradients, output = jit(jax.grad(loss, has_aux=True))(params)
    return output, gradients


def assert_same_up_to_rounding(actual, expected):
    """Compares each tensor to 1e-6 of its largest entry, or of 1 if all are smaller."""

    def check(a, b):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * max(1, np.abs(b).max()))

    jax.tree.map(check, actual, expected)


def drawn(config):
    return jit(lambda: init(config, jax.random.key(0)))()


def assert_finite(tree):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def sharpened(params):
    """Larger weights than at initialization, so that attention and activations are far from 0."""
    return jax.tree.map(lambda leaf: 5 * leaf if leaf.ndim > 1 else leaf, params)


@pytest.fixture
def params(small):
    return sharpened(drawn(small))


def test_parameter_paths_shapes_and_dtypes(small):
    L, D, F, N, H, V = 2, 32, 64, 2, 16, 128
    expected = {
        "embeddings/word/embedding": (V, D),
        "embeddings/position/embedding": (32, D),
        "embeddings/segment/embedding": (2, D),
        "embeddings/norm/scale": (D,),
        "embeddings/norm/bias": (D,),
        "layers/attention/out/kernel": (L, N * H, D),
        "layers/attention/out/bias": (L, D),
        "layers/attention_norm/scale": (L, D),
        "layers/attention_norm/bias": (L, D),
        "layers/mlp/up/kernel": (L, D, F),
        "layers/mlp/up/bias": (L, F),
        "layers/mlp/down/kernel": (L, F, D),
        "layers/mlp/down/bias": (L, D),
        "layers/mlp_norm/scale": (L, D),
        "layers/mlp_norm/bias": (L, D),
        "pooler/kernel": (D, D),
        "pooler/bias": (D,),
        "mlm/transform/kernel": (D, D),
        "mlm/transform/bias": (D,),
        "mlm/norm/scale": (D,),
        "mlm/norm/bias": (D,),
        "mlm/bias": (V,),
        "nsp/kernel": (D, 2),
        "nsp/bias": (2,),
    }
    for name in ("query", "key", "value"):
        expected[f"layers/attention/{name}/kernel"] = (L, N * H, D)
        expected[f"layers/attention/{name}/bias"] = (L, N, H)
    params = jax.eval_shape(lambda: init(small, jax.random.key(0)))
    assert {path: leaf.shape for path, leaf in paths(params).items()} == expected
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    for path, axes in paths(stacked_axes(params)).items():
        assert axes == path.startswith("layers/"), path


def test_optimizer_exclusions_match_biases_and_norms_and_nothing_else(small):
    patterns = OptimizerConfig().exclude
    for path in paths(jax.eval_shape(lambda: init(small, jax.random.key(0)))):
        excluded = any(re.fullmatch(pattern, path) for pattern in patterns)
        assert excluded == (path.rsplit("/", 1)[1] in ("bias", "scale")), path


def test_init_is_a_function_of_the_key(small):
    draw = jit(lambda key: init(small, key))
    first, again, other = (draw(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    for path, leaf in paths(first).items():
        constant = path.endswith(("bias", "scale"))
        assert np.array_equal(leaf, paths(other)[path]) == constant, path
        if constant:
            assert (leaf == path.endswith("scale")).all(), path
        else:
            assert 0 < np.abs(leaf).max() <= 2 * small.init_stddev, path
    kernel = first["layers"]["mlp"]["up"]["kernel"]
    assert not np.array_equal(kernel[0], kernel[1])
    # A normal distribution cut at two standard deviations keeps 0.88 of its spread.
    np.testing.assert_allclose(np.std(kernel), 0.88 * small.init_stddev, rtol=0.02)


@pytest.mark.parametrize(
    ("dropout_key", "variants"),
    [
        (None, [{"scan_layers": True}]),
        (7, [{"scan_layers": True}, {"scan_layers": True, "remat": "full"}, {"remat": "dots"}]),
    ],
    ids=["plain", "dropout"],
)
def test_scan_and_rematerialization_change_no_number(
    small, params, make_batch, dropout_key, variants
):
    batch = make_batch(small, B=4, T=16, P=3)
    key = dropout_key and jax.random.key(dropout_key)
    expected = outputs_and_gradients(small, params, batch, key)
    for changes in variants:
        config = dataclasses.replace(small, **changes)
        assert_same_up_to_rounding(outputs_and_gradients(config, params, batch, key), expected)


def test_p26_rows_of_padding_alone_stay_finite_in_bfloat16_near_float32(small, params, make_batch):
    batch = dict(make_batch(small, B=4, T=16, P=3))
    for key in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids",
                "masked_lm_weights", "next_sentence_weights"):  # fmt: skip
        batch[key] = batch[key].at[2:].set(0)
    single = dataclasses.replace(small, scan_layers=True)
    half = dataclasses.replace(single, dtype="bfloat16")
    expected, exact = outputs_and_gradients(single, params, batch, jax.random.key(7))
    output, gradients = outputs_and_gradients(half, params, batch, jax.random.key(7))
    assert_finite((output, gradients, expected, exact))
    assert {leaf.dtype for leaf in jax.tree.leaves((output, gradients))} == {jnp.dtype("float32")}
    true_ids = np.s_[..., : small.vocab_size]
    scale = np.abs(expected.mlm_logits[true_ids]).max()
    error = np.abs(output.mlm_logits - expected.mlm_logits)[true_ids].max()
    assert 0 < error < 0.03 * scale
    for path, gradient in paths(gradients).items():
        difference = np.linalg.norm(gradient - paths(exact)[path])
        assert difference <= 0.05 * np.linalg.norm(paths(exact)[path]) + 1e-3, path
    abstract = jax.eval_shape(lambda: encode(half, params, batch))
    assert {leaf.dtype for leaf in abstract} == {jnp.dtype("bfloat16")}


def test_the_fast_form_in_bfloat16_is_as_near_to_float32_as_the_plain_one(
    small, params, make_batch
):
    """Outputs within 2e-2 of the plain form, the direction of the whole gradient within 1e-3."""
    batch, key = make_batch(small, B=4, T=16, P=3), jax.random.key(7)

    def run(**changes):
        config = dataclasses.replace(small, scan_layers=True, **changes)
        output, gradients = outputs_and_gradients(config, params, batch, key)
        logits = np.asarray(output.mlm_logits[..., : small.vocab_size])
        return logits, np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradients)])

    exact, exact_gradient = run()
    plain, plain_gradient = run(dtype="bfloat16", attention="plain")
    fast, fast_gradient = run(dtype="bfloat16")
    scale = np.abs(exact).max()
    assert np.abs(fast - plain).max() < 2e-2 * scale
    assert np.abs(fast - exact).max() < 1.5 * np.abs(plain - exact).max()

    def turned(one, other):
        return 1 - one @ other / np.linalg.norm(one) / np.linalg.norm(other)

    assert turned(fast_gradient, plain_gradient) < 1e-3
    assert turned(fast_gradient, exact_gradient) < 1e-3


def test_p16_padded_vocabulary_never_wins_and_never_learns(make_batch):
    config = ModelConfig(
        vocab_size=30522, num_layers=1, hidden_size=16, num_heads=2, intermediate_size=16,
        max_positions=16,
    )  # fmt: skip
    assert padded_vocab(config) == 30592
    params = drawn(config)
    assert not params["embeddings"]["word"]["embedding"][30522:].any()
    # All true ids unlikely: unmasked, the zero logits of the padding would win everywhere.
    params["mlm"]["bias"] = params["mlm"]["bias"].at[:30522].set(-50.0)
    batch = make_batch(config, B=4, T=16, P=3)
    output, gradients = outputs_and_gradients(config, params, batch)
    assert output.mlm_logits.shape == (4, 3, 30592)
    assert np.argmax(output.mlm_logits, axis=-1).max() < 30522
    for dtype in (jnp.float32, jnp.bfloat16):
        probabilities = jax.nn.softmax(output.mlm_logits.astype(dtype), axis=-1)
        assert np.isfinite(probabilities).all()
        assert not probabilities[..., 30522:].any()
    assert not gradients["embeddings"]["word"]["embedding"][30522:].any()
    assert not gradients["mlm"]["bias"][30522:].any()
    assert gradients["mlm"]["bias"][:30522].any()


def test_padding_does_not_reach_tokens(small, params, make_batch):
    batch = dict(make_batch(small, B=4, T=16, P=3))
    tokens = batch["input_mask"] > 0
    run = jit(lambda batch: encode(small, params, batch))
    expected, _ = run(batch)
    batch["input_ids"] = jnp.where(tokens, batch["input_ids"], 5)
    actual, _ = run(batch)
    np.testing.assert_array_equal(actual[tokens], expected[tokens])
    assert not np.array_equal(actual[~tokens], expected[~tokens])


def test_rows_and_predictions_are_independent(small, params, make_batch):
    batch = make_batch(small, B=4, T=16, P=3)
    run = jit(lambda batch: apply(small, params, batch))
    output = run(batch)
    reversed_batch = {key: value[::-1] for key, value in batch.items()}
    positions = reversed_batch["masked_lm_positions"]
    reversed_batch["masked_lm_positions"] = positions[:, ::-1]
    actual = run(reversed_batch)
    np.testing.assert_allclose(actual.nsp_logits[::-1], output.nsp_logits, atol=1e-6)
    np.testing.assert_allclose(actual.mlm_logits[::-1, ::-1], output.mlm_logits, atol=1e-6)


def test_impossible_inputs_raise_and_say_what_was_given(small, params, make_batch):
    unknown = dataclasses.replace(small, vocab_size=0)
    with pytest.raises(ValueError, match="vocab_size = 0"):
        init(unknown, jax.random.key(0))
    with pytest.raises(ValueError, match=r"33 tokens .* max_positions = 32"):
        apply(small, params, make_batch(small, B=2, T=33, P=3))
    batch = make_batch(small, B=2, T=16, P=3)
    deeper = dataclasses.replace(small, num_layers=3)
    with pytest.raises(ValueError, match=r"layers/mlp/up/bias': \(3, 64\)"):
        apply(deeper, params, batch)
    del params["pooler"]
    with pytest.raises(ValueError, match="pooler/kernel"):
        apply(small, params, batch)


def test_importing_the_model_brings_no_other_framework():
    command = [sys.executable, "-X", "importtime", "-c", "import bert_lamb.model"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in report.splitlines()}
    assert "jax" in imported
    assert not imported & {"torch", "tensorflow", "transformers"}
