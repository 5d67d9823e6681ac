"""The small parts against their formulas in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bert_lamb.model.attention import attention
from bert_lamb.model.layers import LayerNorm, gelu

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


def test_attention_is_its_formula():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 3, 5, 4)) for _ in range(3))
    mask = np.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
    logits = q @ k.swapaxes(-1, -2) / 2 + np.where(mask, 0, -np.inf)[:, None, None, :]
    weights = np.exp(logits)
    expected = weights / weights.sum(-1, keepdims=True) @ v
    single = (jnp.asarray(x, jnp.float32) for x in (q, k, v))
    actual = attention(*single, jnp.asarray(mask), dropout_rate=0.5, noise=None)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
