"""Gradient clipping."""

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require
from bert_lamb.optim.masks import PerLeaf, leaf_paths, per_leaf
from bert_lamb.optim.norms import global_norm, sum_of_squares
from bert_lamb.optim.stacking import stacked_axes


def clip_by_global_norm(max_norm: float, *, specs: PerLeaf = None) -> optax.GradientTransformation:
    """Scales the updates so that their norm over all leaves is at most `max_norm`.

    Differs from `optax.clip_by_global_norm` in that the norm is taken in float32 (or float64)
    whatever the dtype of the leaves, and in that updates within the limit pass bit for bit.

    Feed it the mean gradient of the whole batch: clipping each device's or micro-batch's share
    first gives another direction, not only another length.

    Args:
        max_norm: the limit, more than 0.
        specs: PartitionSpecs of the updates inside `jax.shard_map`, as in `lamb`; default None,
            every device has whole leaves.

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
        scale = _shrink(global_norm(updates, specs), max_norm)
        return jax.tree.map(lambda g: (g * scale).astype(g.dtype), updates), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)


def clip_per_tensor(max_norm: float, stacked: PerLeaf = None) -> optax.GradientTransformation:
    """Scales each published tensor's update so that its own norm is at most `max_norm`.

    Unlike a global clip it changes the direction where tensors clip unevenly, and one tensor's
    outlier leaves all others alone. Norms are taken in float32 (or float64) whatever the dtype
    of the leaves, and tensors within the limit pass bit for bit.

    Args:
        max_norm: the limit for each tensor, more than 0.
        stacked: how many leading axes of each leaf stack published tensors, as in
            `scale_by_trust_ratio`; a function of it is called with the updates, which have the
            structure and shapes of the parameters. Default None, every leaf is one tensor.

    Returns:
        A stateless `optax.GradientTransformation`.

    Raises:
        ValueError: `max_norm` is not more than 0; at the update, for a count of stacked axes
            that a leaf does not have.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim.clipping import clip_per_tensor
        >>> clip = clip_per_tensor(1.0, stacked=1)
        >>> gradients = jnp.array([[3.0, 4.0], [0.3, 0.4]])  # two layers, norms 5 and .5
        >>> updates, _ = clip.update(gradients, clip.init(gradients))
        >>> print(updates)
        [[0.6 0.8]
         [0.3 0.4]]
    """
    require("max_norm", max_norm, lambda value: value > 0, "more than 0")

    def update_fn(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del params

        def clip(update: jax.Array, axes: int) -> jax.Array:
            square = sum_of_squares(update, range(axes, update.ndim), keepdims=True)
            return (update * _shrink(jnp.sqrt(square), max_norm)).astype(update.dtype)

        return jax.tree.map(clip, updates, stacked_axes(stacked, updates)), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)


def clip_by_bucket(max_norm: float, bucket: PerLeaf) -> optax.GradientTransformation:
    """Scales each of K buckets of updates so that its norm is at most max_norm / sqrt(K).

    Then the norm of all of them together is at most `max_norm`, as after a global clip, but no
    bucket waits for the others: each can be clipped and reduced as soon as the backward pass has
    filled it. For this apply it to each device's own gradients, before they are averaged over
    the devices; the average stays within the limit. The price is the direction, which changes
    where buckets clip unevenly, and a limit that one large bucket reaches early.

    Norms are taken in float32 (or float64) whatever the dtype of the leaves, and buckets within
    the limit pass bit for bit.

    Args:
        max_norm: the limit for all buckets together, more than 0.
        bucket: the bucket of each leaf, from 0 to K - 1: a pytree of ints shaped like the
            parameters, a prefix of one, or a function such as `assign_buckets`, called with the
            updates, which have the structure and shapes of the parameters. None puts all leaves
            in one bucket: a global clip.

    Returns:
        A stateless `optax.GradientTransformation`.

    Raises:
        ValueError: `max_norm` is not more than 0; at the update, for a bucket that is not a
            whole number of 0 or more, or where a number below the largest has no leaf.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim.clipping import clip_by_bucket
        >>> gradients = {"a": jnp.array([3.0]), "b": jnp.array([0.1])}
        >>> clip = clip_by_bucket(1.0, bucket={"a": 0, "b": 1})
        >>> updates, _ = clip.update(gradients, clip.init(gradients))
        >>> print(updates["a"], updates["b"])  # the limit of each is 1 / sqrt(2)
        [0.70710677] [0.1]

    References:
        Kim et al., `Breaking MLPerf Training: A Case Study on Optimizing BERT
        <https://arxiv.org/abs/2402.02447>`_, 2024, on bucket-wise gradient clipping before
        allreduce.
    """
    require("max_norm", max_norm, lambda value: value > 0, "more than 0")

    def update_fn(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del params
        leaves, structure = jax.tree.flatten(updates)
        buckets = _buckets(bucket, updates)
        squares = [jnp.float32(0)] * (max(buckets, default=-1) + 1)
        for index, leaf in zip(buckets, leaves, strict=True):
            squares[index] += sum_of_squares(leaf)
        limit = max_norm / math.sqrt(max(len(squares), 1))
        scales = [_shrink(jnp.sqrt(square), limit) for square in squares]
        clipped = [
            (leaf * scales[index]).astype(leaf.dtype)
            for index, leaf in zip(buckets, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, clipped), state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)


def assign_buckets(params: optax.Params, max_bytes: int = 25 * 2**20) -> Any:
    """Returns a pytree of ints: the bucket of each leaf, in the order in which they fill.

    The leaves are taken from the last to the first, the order in which the backward pass of a
    model whose leaves follow its forward pass has their gradients ready, and fill one bucket
    after the other. A leaf larger than a bucket, as one of all layers stacked may be, has a
    bucket of its own.

    Args:
        params: pytree of arrays or `jax.ShapeDtypeStruct`, with the dtypes of the gradients.
        max_bytes: size of a bucket, at least 1; default 25 * 2**20, 25 MiB.

    Returns:
        A pytree like `params`, for `clip_by_bucket`; bucket 0 is the first to be full.

    Raises:
        ValueError: `max_bytes` is below 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim.clipping import assign_buckets
        >>> params = {"a": jnp.ones(100), "b": jnp.ones(3), "c": jnp.ones(2), "d": jnp.ones(3)}
        >>> assign_buckets(params, max_bytes=20)  # 4 bytes a number
        {'a': 2, 'b': 1, 'c': 0, 'd': 0}

    References:
        Kim et al., `Breaking MLPerf Training: A Case Study on Optimizing BERT
        <https://arxiv.org/abs/2402.02447>`_, 2024: 22 buckets of 25 MB for BERT-Large.
    """
    require("max_bytes", max_bytes, lambda value: value >= 1, "at least 1")
    leaves, structure = jax.tree.flatten(params)
    buckets: list[int] = []
    index = filled = 0
    for leaf in reversed(leaves):
        size = math.prod(leaf.shape) * leaf.dtype.itemsize
        if filled and filled + size > max_bytes:
            index, filled = index + 1, 0
        filled += size
        buckets.append(index)
    return jax.tree.unflatten(structure, buckets[::-1])


def _shrink(norm: jax.Array, limit: float) -> jax.Array:
    """Returns the factor that brings a norm to the limit; exactly 1 within it."""
    return limit / jnp.maximum(norm, limit)


def _buckets(bucket: PerLeaf, updates: optax.Updates) -> list[int]:
    buckets = []
    paths = jax.tree.leaves(leaf_paths(updates))
    for own, path in zip(
        jax.tree.leaves(per_leaf(bucket, updates, 0, name="bucket")), paths, strict=True
    ):
        try:
            index = -1 if isinstance(own, bool) else operator.index(own)
        except TypeError:
            index = -1
        if index < 0:
            raise ValueError(f"bucket = {own!r} for {path!r}: expected a whole number, 0 or more")
        buckets.append(index)
    used = set(buckets)
    if len(used) <= max(used, default=-1):
        gap = next(index for index in range(len(used)) if index not in used)
        raise ValueError(f"bucket {gap} has no leaf: expected every number from 0 to {max(used)}")
    return buckets
