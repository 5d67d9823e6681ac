"""Euclidean norms in float32 or better, whatever the dtype of the arrays."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax


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
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jnp.sum(jnp.square(wide), axis=None if axis is None else tuple(axis), keepdims=keepdims)


def global_norm(tree: optax.Params) -> jax.Array:
    """Returns the Euclidean norm over all leaves of a pytree together, in float32 or better."""
    return jnp.sqrt(sum((sum_of_squares(x) for x in jax.tree.leaves(tree)), jnp.float32(0)))
