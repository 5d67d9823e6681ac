"""Gradients divided by their norms, whatever these are."""

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require
from bert_lamb.optim.clipping import clip_by_global_norm
from bert_lamb.optim.masks import PerLeaf
from bert_lamb.optim.norms import global_norm, tensor_norms, wide
from bert_lamb.optim.sharding import spread_specs
from bert_lamb.optim.stacking import stacked_axes


def normalize_by_global_norm(*, specs: PerLeaf = None) -> optax.GradientTransformation:
    """Divides the updates by their norm over all leaves; updates of norm 0 stay 0.

    Args:
        specs: PartitionSpecs inside `jax.shard_map`, as in `lamb`; default None.

    Returns:
        A stateless `optax.GradientTransformation`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import normalize_by_global_norm
        >>> normalize = normalize_by_global_norm()
        >>> gradients = {"a": jnp.array([0.03, 0.0]), "b": jnp.array([0.04])}
        >>> updates, _ = normalize.update(gradients, normalize.init(gradients))
        >>> print(updates["a"], updates["b"])
        [0.59999996 0.        ] [0.79999995]

    References:
        Nado et al., `A Large Batch Optimizer Reality Check <https://arxiv.org/abs/2102.06356>`_,
        2021, which names it as the step that NVIDIA's implementation adds to LAMB.
    """

    def update_fn(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del params
        norm = global_norm(updates, specs)
        return jax.tree.map(lambda g: _divided(g, norm), updates), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)


def normalize_per_tensor(
    *, stacked: PerLeaf = None, specs: PerLeaf = None
) -> optax.GradientTransformation:
    """Divides the update of each published tensor by its norm; tensors of norm 0 stay 0.

    Args:
        stacked: number of leading axes of each leaf that stack published tensors, as in `lamb`;
            default None, 0 everywhere.
        specs: PartitionSpecs inside `jax.shard_map`, as in `lamb`; default None.

    Returns:
        A stateless `optax.GradientTransformation`.

    Raises:
        ValueError: at the update, for a count of stacked axes that a leaf does not have.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import normalize_per_tensor
        >>> normalize = normalize_per_tensor(stacked=1)
        >>> layers = jnp.array([[3.0, 4.0], [0.0, 0.01]])
        >>> print(normalize.update(layers, normalize.init(layers))[0])
        [[0.6 0.8]
         [0.  1. ]]

    References:
        Zheng et al., `Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes
        <https://arxiv.org/abs/2006.13484>`_, 2020, section 3.1.
    """

    def update_fn(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del params
        leaves, structure = jax.tree.flatten(updates)
        axes = jax.tree.leaves(stacked_axes(stacked, updates))
        norms = tensor_norms(leaves, axes, spread_specs(specs, updates))
        return jax.tree.unflatten(structure, map(_divided, leaves, norms)), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)


def shape_gradient(
    clip_norm: float | None, pre_normalize: bool, specs: PerLeaf
) -> optax.GradientTransformation:
    """Returns what an optimizer does to the mean gradient before its moments see it."""
    if clip_norm is not None:
        require("clip_norm", clip_norm, lambda value: value > 0, "more than 0, or None")
    if pre_normalize and clip_norm is not None:
        raise ValueError(
            f"pre_normalize with clip_norm = {clip_norm}: a gradient of norm 1 has no use for "
            "a limit; leave one of them out"
        )
    if pre_normalize:
        return normalize_by_global_norm(specs=specs)
    return optax.identity() if clip_norm is None else clip_by_global_norm(clip_norm, specs=specs)


def _divided(x: jax.Array, norm: jax.Array) -> jax.Array:
    return (wide(x) / jnp.where(norm > 0, norm, 1)).astype(x.dtype)
