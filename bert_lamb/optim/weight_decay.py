"""Decay as a part of the direction, where LAMB and LANS take its norm."""

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.masks import PerLeaf, leaf_flags
from bert_lamb.optim.norms import wide


def decay_rate(weight_decay: optax.ScalarOrSchedule, count: jax.Array) -> jax.Array:
    """Returns the coefficient of the update that follows `count` others, a scalar."""
    return jnp.asarray(weight_decay(count) if callable(weight_decay) else weight_decay, float)


def add_decay(
    directions: optax.Updates, params: optax.Params, mask: PerLeaf, rate: jax.Array
) -> optax.Updates:
    """Adds rate * x to the directions of the leaves that decay, in the directions' dtype."""

    def decayed(decays: bool, u: jax.Array, x: jax.Array) -> jax.Array:
        return u + rate.astype(u.dtype) * wide(x) if decays else u

    return jax.tree.map(decayed, leaf_flags("mask", mask, params), directions, params)
