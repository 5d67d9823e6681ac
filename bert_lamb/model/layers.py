"""The two parametrized layers of BERT, affine map and LayerNorm, and its activation.

Parameters are float32 whatever the compute dtype; they are cast where they are used, so the
gradient that reaches the optimizer is float32 too.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from bert_lamb.config import ModelConfig


class Dense(nnx.Module):
    """Affine map with a truncated normal kernel and a zero bias.

    Attributes:
        kernel: float32 [*inputs, *outputs].
        bias: float32 [*outputs].
    """

    def __init__(
        self, config: ModelConfig, inputs: tuple[int, ...], outputs: tuple[int, ...], rngs: nnx.Rngs
    ):
        initializer = nnx.initializers.truncated_normal(config.init_stddev)
        self.kernel = nnx.Param(initializer(rngs.params(), inputs + outputs, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(outputs, jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [..., inputs] to [..., outputs] for a kernel of two axes, in the dtype of x."""
        return x @ self.kernel[...].astype(x.dtype) + self.bias[...].astype(x.dtype)


class LayerNorm(nnx.Module):
    """Normalizes the last axis to mean 0 and variance 1, then scales and shifts it.

    Mean and variance are taken in float32 and in two passes: E[x^2] - E[x]^2 would cancel where
    the mean is large against the spread.

    Attributes:
        scale: float32 [D].
        bias: float32 [D].

    References:
        Ba et al., Layer Normalization, https://arxiv.org/abs/1607.06450, section 3.
    """

    def __init__(self, config: ModelConfig):
        self.scale = nnx.Param(jnp.ones((config.hidden_size,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((config.hidden_size,), jnp.float32))
        self.eps = config.layer_norm_eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the normalized x [..., D], in the dtype of x."""
        centered = x.astype(jnp.float32)
        centered -= jnp.mean(centered, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
        normalized = centered * jax.lax.rsqrt(variance + self.eps)
        return (normalized * self.scale[...] + self.bias[...]).astype(x.dtype)


@jax.custom_jvp
def _erf(x: jax.Array) -> jax.Array:
    # In JAX 0.12.0 the derivative of `jax.lax.erf` fails inside shard_map ("Primitive polynomial
    # requires varying manual axes to match"); with a rule of its own it works in every version.
    return jax.lax.erf(x)


@_erf.defjvp
def _erf_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (dx,) = primals, tangents
    return _erf(x), (2.0 / math.sqrt(math.pi)) * jnp.exp(-jnp.square(x)) * dx


def gelu(x: jax.Array, form: str) -> jax.Array:
    """Returns x times the standard normal distribution function of x.

    Args:
        x: any shape; computed in float32, returned in the dtype of x.
        form: "gelu" for the exact function, "gelu_tanh" for the approximation that Google's BERT
            was trained with (at most 5e-4 away, and cheaper than erf on accelerators).

    Raises:
        ValueError: for another form.

    References:
        Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415, section 2.
    """
    y = x.astype(jnp.float32)
    if form == "gelu":
        cdf = 0.5 * (1.0 + _erf(y * math.sqrt(0.5)))
    elif form == "gelu_tanh":
        cdf = 0.5 * (1.0 + jnp.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * y**3)))
    else:
        raise ValueError(f"activation = {form!r}: expected 'gelu' or 'gelu_tanh'")
    return (y * cdf).astype(x.dtype)
