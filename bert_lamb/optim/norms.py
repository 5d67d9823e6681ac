"""Euclidean norms in float32 or better, whatever the dtype of the arrays and wherever they lie."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_lamb.optim.masks import PerLeaf
from bert_lamb.optim.sharding import split_over, spread_specs, sum_over_devices

# From an array and the axes to reduce to its norms, the reduced axes kept with size 1.
Norm = Callable[[jax.Array, Sequence[int]], jax.Array]


def wide(x: jax.Array) -> jax.Array:
    """Returns x in float32, or as it is where it is wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def sum_of_squares(
    x: jax.Array, axis: Sequence[int] | None = None, keepdims: bool = False
) -> jax.Array:
    """Sums x**2 in float32, or in float64 where x is.

    Half-precision squares leave the range early: in float16 the sum over a 512 x 512 matrix of
    ones is infinite, and the square of 1e-4 is zero.

    Args:
        x: array of any shape.
        axis: axes to sum over; None is all of them, and an empty sequence none.
        keepdims: keep the summed axes with size 1.

    Returns:
        The sum, of dtype float32 or float64.
    """
    return jnp.sum(
        jnp.square(wide(x)), axis=None if axis is None else tuple(axis), keepdims=keepdims
    )


def global_norm(tree: optax.Params, specs: PerLeaf = None) -> jax.Array:
    """Returns the Euclidean norm over all leaves of a pytree together, in float32 or better.

    Args:
        tree: pytree of arrays.
        specs: inside `jax.shard_map`, the PartitionSpecs by which the leaves are split, shaped
            like `tree` or a prefix of it; default None, every leaf is whole.
    """
    squares = [sum_of_squares(x) for x in jax.tree.leaves(tree)]
    names = [split_over(spec) for spec in spread_specs(specs, tree)]
    return jnp.sqrt(sum(sum_over_devices(squares, names), jnp.float32(0)))


def tensor_norms(
    arrays: list[jax.Array],
    stacked: list[int],
    specs: list[PartitionSpec],
    norm: Norm | None = None,
) -> list[jax.Array]:
    """Returns the norm of each published tensor that the arrays hold.

    Args:
        arrays: each [*stack, *tensor].
        stacked: of each array, the number of leading axes that stack published tensors.
        specs: of each array, how it is split inside `jax.shard_map`.
        norm: instead of the Euclidean norm; sees whole arrays only.

    Returns:
        For each array its norms, [*stack, 1, ..., 1] in float32 at least.
    """
    axes = [tuple(range(n, x.ndim)) for x, n in zip(arrays, stacked, strict=True)]
    if norm is not None:
        return [norm(x, over) for x, over in zip(arrays, axes, strict=True)]
    squares = [sum_of_squares(x, over, keepdims=True) for x, over in zip(arrays, axes, strict=True)]
    names = [split_over(spec, n) for spec, n in zip(specs, stacked, strict=True)]
    return [root(square) for square in sum_over_devices(squares, names)]


def root(square: jax.Array) -> jax.Array:
    """Returns the square root, with a slope of 0 instead of an infinite one at 0."""
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
