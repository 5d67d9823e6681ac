"""Scaled dot-product attention over the tokens of a row, with a padding mask and dropout.

Heads stand before tokens, [B, N, T, H]: the layout in which the two batched products run, so that
nothing is transposed between the projections and the products. Another implementation (a fused
kernel) needs the same signature and the same layout.
"""

import math

import jax
import jax.numpy as jnp

from bert_lamb.model.dropout import Noise, dropout

# Far below any attention logit, and still finite when a logit is added to it: a row that is
# padding throughout attends evenly to all of its tokens instead of dividing 0 by 0.
MASKED = -1e30


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    *,
    dropout_rate: float,
    noise: Noise | None,
) -> jax.Array:
    """Returns softmax(Q K^T / sqrt(H)) V, with dropout on the probabilities.

    Args:
        query: [B, N, T, H], float32 or bfloat16.
        key: [B, N, T, H].
        value: [B, N, T, H].
        mask: bool [B, T], True at tokens that may be attended to.
        dropout_rate: probability of dropping an attention probability.
        noise: the source of this site's dropout; None for none.

    Returns:
        [B, N, T, H] in the dtype of `value`. The softmax is taken in float32.

    References:
        Vaswani et al., https://arxiv.org/abs/1706.03762, equation 1.
    """
    query *= 1 / math.sqrt(query.shape[-1])  # H numbers per token instead of T
    logits = jnp.einsum("BNTH,BNSH->BNTS", query, key, preferred_element_type=jnp.float32)
    logits += jnp.where(mask, 0.0, MASKED)[:, None, None, :]
    probabilities = dropout(jax.nn.softmax(logits, axis=-1), dropout_rate, noise)
    return jnp.einsum("BNTS,BNSH->BNTH", probabilities.astype(value.dtype), value)
