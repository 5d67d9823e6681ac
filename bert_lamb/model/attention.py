"""Scaled dot-product attention over the tokens of a row, with a padding mask and dropout.

Heads stand before tokens, [B, N, T, H]: the layout in which the two batched products run, so that
nothing is transposed between the projections and the products.

Two forms compute the same function:

* `plain_attention` leaves the backward pass to JAX. It keeps, of every probability, the softmax in
  float32, the dropped probability in the compute dtype and the mask of dropout.
* `compact_attention` has a backward pass of its own, which needs one number of each in the compute
  dtype, and the mask. And its softmax takes no maximum: exp fuses into the first product, and the
  division moves behind the second, where there are H numbers for each query instead of T.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_lamb.model.dropout import Mask, Noise, apply_mask, draw_mask

# Far below any attention logit, and still finite when a logit is added to it: a row that is
# padding throughout gives no 0 / 0.
MASKED = -1e30
# Logits up to this size go through exp as they are: e^40 = 2e17 leaves gradients, which are divided
# by the sum of such numbers, far above the smallest of float32 and bfloat16, 1e-38.
LARGEST_EXPONENT = 40.0


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    *,
    form: str,
    dropout_rate: float,
    noise: Noise | None,
) -> jax.Array:
    """Returns softmax(Q K^T / sqrt(H)) V, with dropout on the probabilities.

    Args:
        query: [B, N, T, H], float32 or bfloat16.
        key: [B, N, T, H].
        value: [B, N, T, H].
        mask: bool [B, T], True at tokens that may be attended to.
        form: "plain" or "compact".
        dropout_rate: probability of dropping an attention probability.
        noise: the source of this site's dropout; None for none.

    Returns:
        [B, N, T, H] in the dtype of `value`.

    Raises:
        ValueError: for another form.

    References:
        Vaswani et al., https://arxiv.org/abs/1706.03762, equation 1.
    """
    if form not in FORMS:
        raise ValueError(f"attention = {form!r}: expected one of {', '.join(FORMS)}")
    B, N, T, H = query.shape
    query *= 1 / math.sqrt(H)  # H numbers per token instead of T
    bias = jnp.where(mask, 0.0, MASKED)[:, None, None, :]
    # Drawn with queries last, as the products below leave their results in memory on TPU.
    dropped = draw_mask((B, N, key.shape[2], T), dropout_rate, noise)
    dropped = None if dropped is None else dropped.swapped()
    return FORMS[form](query, key, value, bias, dropped)


def plain_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array,
    dropped: Mask | None,
) -> jax.Array:
    """Attends with the softmax in float32, differentiated by JAX.

    Arguments and result are those of `compact_attention`; a query of a row without any token
    attends evenly to all of its places.
    """
    probabilities = jax.nn.softmax(_logits(query, key) + bias, axis=-1)
    if dropped is not None:
        probabilities = apply_mask(probabilities, dropped)
    return jnp.einsum("BNTS,BNSH->BNTH", probabilities.astype(value.dtype), value)


@jax.custom_vjp
def compact_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array,
    dropped: Mask | None,
) -> jax.Array:
    """Attends without a maximum, and keeps one number per probability for the backward pass.

    The softmax needs some number c near the largest logit s of a query, which drops out of
    exp(s - c) / sum exp(s - c), so that exp neither overflows nor vanishes. To find the largest
    costs a pass over T numbers for each query. By Cauchy and Schwarz no |s| is above |q| |k|, which
    costs H numbers for each query. Where all of these bounds are below `LARGEST_EXPONENT`, as in
    any usual model, c is 0; else it is the largest logit. The result differs from that of
    `plain_attention` by the rounding of probabilities to the compute dtype.

    Args:
        query: [B, N, T, H], already divided by sqrt(H).
        key: [B, N, S, H].
        value: [B, N, S, H].
        bias: float32 [B, 1, 1, S], added to the logits, 0 or far below 0.
        dropped: mask of [B, N, T, S], what dropout keeps of the probabilities; None for all.

    Returns:
        [B, N, T, H] in the dtype of `value`; 0 for queries of rows without any token.
    """
    return _forward(query, key, value, bias, dropped)[0]


def _forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array,
    dropped: Mask | None,
) -> tuple[jax.Array, tuple]:
    exponentials = jnp.exp(_logits(query, key) + bias - _shift(query, key, bias))
    exponentials = exponentials.astype(query.dtype)
    total = jnp.sum(exponentials, axis=-1, keepdims=True, dtype=jnp.float32)
    scale = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1), 0)
    # The division, and the scale of dropout, stand behind the product.
    out = jnp.einsum(
        "BNTS,BNSH->BNTH", _kept(exponentials, dropped), value, preferred_element_type=jnp.float32
    )
    out = (out * (scale * _rescaling(dropped))).astype(value.dtype)
    return out, (query, key, value, exponentials, dropped, scale, out)


def _backward(saved: tuple, d_out: jax.Array) -> tuple:
    query, key, value, exponentials, dropped, scale, out = saved
    dtype = query.dtype
    # With the division by the sum in d_out, exponentials stand for probabilities below.
    d_scaled = (d_out.astype(jnp.float32) * (scale * _rescaling(dropped))).astype(dtype)
    d_value = jnp.einsum("BNTS,BNTH->BNSH", _kept(exponentials, dropped), d_scaled)
    d_kept = jnp.einsum("BNTH,BNSH->BNTS", d_scaled, value, preferred_element_type=jnp.float32)
    # sum over S of p dp, as the product of the output and its gradient: H numbers instead of S.
    mean = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=-1, keepdims=True)
    d_logits = exponentials.astype(jnp.float32) * (_kept(d_kept, dropped) - mean * scale)
    d_logits = d_logits.astype(dtype)
    d_query = jnp.einsum("BNTS,BNSH->BNTH", d_logits, key)
    d_key = jnp.einsum("BNTS,BNTH->BNSH", d_logits, query)
    return d_query, d_key, d_value, None, None


compact_attention.defvjp(_forward, _backward)


def _kept(x: jax.Array, dropped: Mask | None) -> jax.Array:
    return x if dropped is None else jnp.where(dropped.kept(), x, jnp.zeros((), x.dtype))


def _rescaling(dropped: Mask | None) -> float:
    return 1.0 if dropped is None else 1 / dropped.kept_share


def _logits(query: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.einsum("BNTH,BNSH->BNTS", query, key, preferred_element_type=jnp.float32)


def _shift(query: jax.Array, key: jax.Array, bias: jax.Array) -> jax.Array:
    """Returns what to subtract from the logits of each query, float32 [B, N, T, 1]."""

    def norm(x: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)), axis=-1))

    def none() -> jax.Array:
        return 0 * bounds  # zeros of the same kind: inside shard_map, as different as the rows

    def largest() -> jax.Array:
        return jnp.max(_logits(query, key) + bias, axis=-1)

    longest = jnp.max(jnp.where(bias[:, :, 0] < 0, 0, norm(key)), axis=2)
    bounds = norm(query) * longest[:, :, None]
    shift = jax.lax.cond(jnp.max(bounds) > LARGEST_EXPONENT, largest, none)
    return shift[..., None]


FORMS: dict[str, Callable[..., jax.Array]] = {
    "plain": plain_attention,
    "compact": compact_attention,
}
