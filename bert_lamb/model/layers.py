"""What the blocks of BERT are made of: affine maps, LayerNorm, the activation, the word table.

LayerNorm and both uses of the word table (lookup, decode) have backward passes of their own.

Parameters are float32 whatever the compute dtype; they are cast where they are used, so the
gradient that reaches the optimizer is float32 too.
"""

import math
from functools import partial

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


class Projection(nnx.Module):
    """Affine map of D numbers to N heads of H, stored as N * H rows.

    Attributes:
        kernel: float32 [N * H, D].
        bias: float32 [N, H].
    """

    def __init__(self, config: ModelConfig, heads: tuple[int, int], rngs: nnx.Rngs):
        initializer = nnx.initializers.truncated_normal(config.init_stddev)
        shape = (math.prod(heads), config.hidden_size)
        self.kernel = nnx.Param(initializer(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(heads, jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [B, T, D] to [B, N, T, H], in the dtype of x."""
        bias = self.bias[...]
        kernel = self.kernel[...].reshape(*bias.shape, -1)
        y = jnp.einsum("BTD,NHD->BNTH", x, kernel.astype(x.dtype))
        return y + bias[:, None, :].astype(x.dtype)


class LayerNorm(nnx.Module):
    """Normalizes the last axis to mean 0 and variance 1, then scales and shifts it.

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
        return layer_norm(x, self.scale[...], self.bias[...], self.eps)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float) -> jax.Array:
    """Normalizes x [..., D]; scale and bias are float32 [D]. Computed in float32.

    The backward pass is written out: from autodiff it takes one more pass over the activations,
    for the mean of terms whose sum is known to be 0.
    """
    return _layer_norm_forward(x, scale, bias, eps)[0]


def _layer_norm_forward(
    x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float
) -> tuple[jax.Array, tuple]:
    mean, deviation = _moments(x, eps)
    normalized = (x.astype(jnp.float32) - mean) * deviation
    return (normalized * scale + bias).astype(x.dtype), (x, mean, deviation, scale)


def _moments(x: jax.Array, eps: float) -> tuple[jax.Array, jax.Array]:
    """Returns mean and 1 / sqrt(variance + eps) over the last axis, float32 [..., 1]."""
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=-1, keepdims=True)
    if x.dtype == jnp.float32:
        variance = jnp.mean(jnp.square(wide - mean), axis=-1, keepdims=True)
    else:
        # One pass. Where E[x^2] - E[x]^2 cancels, the rounding of x itself has cost more already.
        variance = jnp.mean(jnp.square(wide), axis=-1, keepdims=True) - jnp.square(mean)
        variance = jnp.maximum(variance, 0)
    return mean, jax.lax.rsqrt(variance + eps)


def _layer_norm_backward(eps: float, saved: tuple, grad: jax.Array) -> tuple:
    x, mean, deviation, scale = saved
    grad = grad.astype(jnp.float32)
    normalized = (x.astype(jnp.float32) - mean) * deviation
    scaled = grad * scale
    along = jnp.mean(scaled * normalized, axis=-1, keepdims=True)
    level = jnp.mean(scaled, axis=-1, keepdims=True)
    d_x = (deviation * (scaled - level - normalized * along)).astype(x.dtype)
    rows = tuple(range(x.ndim - 1))
    d_scale, d_bias = jnp.sum(grad * normalized, axis=rows), jnp.sum(grad, axis=rows)
    return d_x, _summed_like(scale, d_scale), _summed_like(scale, d_bias)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


@jax.custom_vjp
def decode(x: jax.Array, table: jax.Array) -> jax.Array:
    """Returns the products of x [B, P, D] with the rows of `table` [V, D], float32 [B, P, V].

    The backward pass rounds the gradient of the logits to the dtype of x once, and both of its
    products read that. Left to itself a TPU's compiler computes the softmax again in each tile.
    """
    return jnp.einsum("BPD,VD->BPV", x, table, preferred_element_type=jnp.float32)


def _decode_backward(saved: tuple[jax.Array, jax.Array], grad: jax.Array) -> tuple:
    x, table = saved
    grad = jax.lax.optimization_barrier(grad.astype(x.dtype))
    d_table = jnp.einsum("BPV,BPD->VD", grad, x)
    return jnp.einsum("BPV,VD->BPD", grad, table), _summed_like(table, d_table)


decode.defvjp(lambda x, table: (decode(x, table), (x, table)), _decode_backward)


@jax.custom_vjp
def lookup(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Returns the rows [B, T, D] of `table` [V, D] with the numbers `ids`, int32 [B, T].

    The gradient of each row is summed in float32 and rounded once to the dtype of `table`: added
    one by one in bfloat16, what a frequent token gets would stand still after a few hundred. Ids
    out of range give the first or the last row.
    """
    return table.at[ids].get(mode="clip")


def _lookup_forward(table: jax.Array, ids: jax.Array) -> tuple[jax.Array, tuple]:
    return lookup(table, ids), (table, ids)


def _lookup_backward(saved: tuple[jax.Array, jax.Array], grad: jax.Array) -> tuple:
    table, ids = saved
    total = jnp.zeros_like(table, jnp.float32)
    total = total.at[ids].add(grad.astype(jnp.float32), mode="clip")
    return _summed_like(table, total.astype(table.dtype)), None


lookup.defvjp(_lookup_forward, _lookup_backward)


def _summed_like(parameter: jax.Array, grad: jax.Array) -> jax.Array:
    """Sums a gradient over the axes of `jax.shard_map` along which its parameter is the same.

    JAX does so itself where it differentiates; a backward pass of one's own has to.
    """
    axes = jax.typeof(grad).mat.varying - jax.typeof(parameter).mat.varying
    return jax.lax.psum(grad, tuple(axes)) if axes else grad


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
