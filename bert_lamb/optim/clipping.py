"""Gradient clipping."""

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require
from bert_lamb.optim.norms import global_norm


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales the updates so that their norm over all leaves is at most `max_norm`.

    Differs from `optax.clip_by_global_norm` in that the norm is taken in float32 (or float64)
    whatever the dtype of the leaves, and in that updates within the limit pass bit for bit.

    Feed it the mean gradient of the whole batch: clipping each device's or micro-batch's share
    first gives another direction, not only another length.

    Args:
        max_norm: the limit, more than 0.

    Returns:
        A stateless `optax.GradientTransformation`.

    Raises:
        ValueError: `max_norm` is not more than 0.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import clip_by_global_norm
        >>> clip = clip_by_global_norm(1.0)
        >>> gradients = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
        >>> updates, _ = clip.update(gradients, clip.init(gradients))
        >>> print(updates["a"], updates["b"])
        [0.6 0. ] [0.8]

    References:
        Pascanu et al., `On the difficulty of training recurrent neural networks
        <https://arxiv.org/abs/1211.5063>`_, 2012, algorithm 1.
    """
    require("max_norm", max_norm, lambda value: value > 0, "more than 0")

    def update_fn(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del params
        scale = max_norm / jnp.maximum(global_norm(updates), max_norm)
        return jax.tree.map(lambda g: (g * scale).astype(g.dtype), updates), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)
