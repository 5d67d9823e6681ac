"""The small parts against their formulas in float64."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bert_lamb.model.attention import FORMS, attention
from bert_lamb.model.dropout import Noise
from bert_lamb.model.layers import LayerNorm, decode, gelu, layer_norm, lookup
from tests.quick import jit

X = np.linspace(-6, 6, 1201)


def exact(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh_form(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(("form", "formula"), [("gelu", exact), ("gelu_tanh", tanh_form)])
def test_gelu_is_its_formula(form, formula):
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_allclose(gelu(x, form), formula(X), atol=1e-6)
    slope = (formula(X + 1e-5) - formula(X - 1e-5)) / 2e-5
    gradient = jax.vmap(jax.grad(lambda x: gelu(x, form)))(x)
    np.testing.assert_allclose(gradient, slope, atol=5e-6)
    assert gelu(x.astype(jnp.bfloat16), form).dtype == jnp.bfloat16
    far = jnp.asarray([-1e4, 1e4], jnp.float32)
    np.testing.assert_array_equal(gelu(far, form), [0, 1e4])
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: gelu(x, form)))(far), [0, 1])


def test_the_two_forms_of_gelu_differ():
    x = jnp.asarray(X, jnp.float32)
    difference = np.abs(gelu(x, "gelu") - gelu(x, "gelu_tanh")).max()
    np.testing.assert_allclose(difference, np.abs(exact(X) - tanh_form(X)).max(), atol=1e-6)
    assert 1e-4 < difference < 5e-4
    with pytest.raises(ValueError, match="'relu'"):
        gelu(x, "relu")


def test_layer_norm_is_its_formula_far_from_zero(small):
    norm = LayerNorm(small)
    rng = np.random.default_rng(0)
    norm.scale = nnx.Param(jnp.asarray(rng.normal(size=32), jnp.float32))
    norm.bias = nnx.Param(jnp.asarray(rng.normal(size=32), jnp.float32))
    x = rng.normal(size=(5, 32)).astype(np.float32) + 100
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    expected = expected * np.asarray(norm.scale[...]) + np.asarray(norm.bias[...])
    np.testing.assert_allclose(norm(jnp.asarray(x)), expected, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_its_formula(form):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 3, 5, 4)) for _ in range(3))
    mask = np.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
    logits = q @ k.swapaxes(-1, -2) / 2 + np.where(mask, 0, -np.inf)[:, None, None, :]
    weights = np.exp(logits)
    expected = weights / weights.sum(-1, keepdims=True) @ v
    single = (jnp.asarray(x, jnp.float32) for x in (q, k, v))
    actual = attention(*single, jnp.asarray(mask), form=form, dropout_rate=0.5, noise=None)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def _draw(shape, dtype="float32", scale=1.0, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * scale, dtype)


def _attend(form, dtype, *, scale=1.0, tokens=(24, 24, 7, 1), noise=True):
    """Returns the output and the gradients by query, key and value of one form."""
    B, N, T, H = len(tokens), 4, 24, 16
    inputs = [_draw((B, N, T, H), dtype, scale, seed) for seed in range(3)]
    toward = _draw((B, N, T, H), dtype, seed=3)
    mask = np.arange(T) < np.asarray(tokens)[:, None]
    source = Noise(jax.random.key(5), jnp.arange(B), "threefry") if noise else None

    @jit
    def run(*inputs):
        call = partial(attention, mask=mask, form=form, dropout_rate=0.1, noise=source)
        output, pull_back = jax.vjp(call, *inputs)
        return output, *pull_back(toward)

    return [np.asarray(x, np.float64) for x in run(*inputs)]


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("scale", [1.0, 6.0])  # logits up to 10, and up to 300
def test_compact_attention_is_plain_attention(scale, noise):
    plain, compact = (_attend(form, "float32", scale=scale, noise=noise) for form in FORMS)
    for expected, actual in zip(plain, compact, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_compact_attention_in_bfloat16_stays_near_the_plain_form(scale):
    plain, compact = (_attend(form, "bfloat16", scale=scale) for form in FORMS)
    np.testing.assert_allclose(compact[0], plain[0], atol=2e-2 * np.abs(plain[0]).max())
    for expected, actual in zip(plain[1:], compact[1:], strict=True):
        assert _turned(expected, actual) < 1e-3


def _turned(expected, actual):
    """Returns 1 - cosine of the angle between two gradients."""
    lengths = np.linalg.norm(expected) * np.linalg.norm(actual)
    return 1 - np.vdot(expected, actual) / lengths


@pytest.mark.parametrize("form", FORMS)
def test_attention_of_a_row_without_tokens_is_finite(form):
    for array in _attend(form, "float32", tokens=(24, 0)):
        assert np.isfinite(array).all()


def test_unknown_form_of_attention_raises():
    x = jnp.zeros((1, 1, 2, 2))
    with pytest.raises(ValueError, match="'flash': expected one of plain, compact"):
        attention(x, x, x, jnp.ones((1, 2), bool), form="flash", dropout_rate=0, noise=None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_of_layer_norm_is_that_of_its_formula(dtype):
    def formula(x, scale, bias):
        x = x.astype(jnp.float32)
        centered = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centered).mean(-1, keepdims=True)
        return (centered * jax.lax.rsqrt(variance + 1e-12) * scale + bias).astype(dtype)

    x, scale, bias = _draw((3, 5, 32), dtype), _draw(32, seed=1), _draw(32, seed=2)
    toward = _draw((3, 5, 32), dtype, seed=3)
    expected, expected_back = jax.vjp(formula, x + 3, scale, bias)
    actual, back = jax.vjp(lambda *a: layer_norm(*a, 1e-12), x + 3, scale, bias)
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2}[dtype]
    for one, other in zip((actual, *back(toward)), (expected, *expected_back(toward)), strict=True):
        assert one.dtype == other.dtype
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, atol=tolerance * max(1, np.abs(other).max()))


def test_layer_norm_of_equal_numbers_is_finite_in_bfloat16():
    x = jnp.full((2, 32), 37.3, jnp.bfloat16)
    ones = jnp.ones(32, jnp.float32)
    value, gradient = jax.value_and_grad(lambda x: layer_norm(x, ones, ones, 1e-12).sum())(x)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


def test_what_a_frequent_token_gets_does_not_stand_still():
    # 3,000 times 1/256: in bfloat16, one by one, the sum stops at 1.
    table = jnp.zeros((4, 8), jnp.bfloat16)
    ids = jnp.full((1, 3000), 2)
    gradient = jax.grad(lambda table: lookup(table, ids).astype(jnp.float32).sum() / 256)(table)
    np.testing.assert_allclose(gradient[2].astype(jnp.float32), 3000 / 256, rtol=2**-8)
    assert gradient.dtype == jnp.bfloat16
    assert not gradient[jnp.asarray([0, 1, 3])].any()


def test_lookup_and_decode_are_their_formulas():
    table, x = _draw((11, 8)), _draw((2, 3, 8), seed=1)
    ids = jnp.asarray([[0, 10, 3], [3, 3, 12]])
    toward = _draw((2, 3, 11), seed=2)

    def ours(table, x):
        return (decode(x, table) * toward).sum() + (lookup(table, ids) * x).sum()

    def formula(table, x):
        rows = table[jnp.clip(ids, 0, 10)]
        return (jnp.einsum("BPD,VD->BPV", x, table) * toward).sum() + (rows * x).sum()

    for actual, expected in zip(
        jax.grad(ours, (0, 1))(table, x), jax.grad(formula, (0, 1))(table, x), strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-5)
