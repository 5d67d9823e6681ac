"""The layerwise adaptation of LAMB: one trust ratio per tensor of the published model."""

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.masks import PerLeaf, per_leaf, stacked_axes
from bert_lamb.optim.norms import sum_of_squares


def trust_ratio(param: jax.Array, update: jax.Array, stacked: int = 0) -> jax.Array:
    """Returns ||param|| / ||update|| for each published tensor that the arrays hold.

    Args:
        param: parameters, [*stack, *tensor].
        update: direction of the step, same shape.
        stacked: number of leading axes that stack published tensors; the norms run over the
            other axes.

    Returns:
        Ratios in float32 (float64 for float64 arrays), [*stack, 1, ..., 1], ready to multiply
        the update. They are 1 where either norm is 0.
    """
    axes = range(stacked, param.ndim)
    param_square = sum_of_squares(param, axes, keepdims=True)
    update_square = sum_of_squares(update, axes, keepdims=True)
    defined = (param_square > 0) & (update_square > 0)
    # The inner `where`s keep 0/0 out of the forward pass and 1/sqrt(0) out of the derivatives.
    param_norm = jnp.sqrt(jnp.where(defined, param_square, 1))
    update_norm = jnp.sqrt(jnp.where(defined, update_square, 1))
    return param_norm / update_norm


def scale_by_trust_ratio(
    *, mask: PerLeaf = None, stacked: PerLeaf = None
) -> optax.GradientTransformation:
    """Scales each tensor's update to the norm of the tensor.

    Differs from `optax.scale_by_trust_ratio` in three ways: leaves can be left out, a leaf may
    hold several stacked tensors, and norms are taken in float32 whatever the dtype.

    The arithmetic is plain `jax.numpy`, so under `jax.jit` it follows the sharding of the
    parameters on any mesh.

    Args:
        mask: which leaves adapt: a pytree of bools shaped like the parameters or a prefix of
            them, or a function from the parameters to one; the others pass unchanged. None
            adapts every leaf.
        stacked: how many leading axes of each leaf stack published tensors: a pytree of ints
            (0 for a leaf that is one tensor), a prefix of one, or a function from the parameters
            to one. Layers stored as [L, ...] for `jax.lax.scan` have 1; so has a fused
            [3, D, N, H] query, key and value; both at once, [L, 3, D, N, H], have 2. None
            declares every leaf one tensor. A count is never guessed from a shape.

    Returns:
        A stateless `optax.GradientTransformation`; its update needs the parameters.

    Raises:
        ValueError: at the update, for a count of stacked axes that a leaf does not have, or
            where the parameters are not passed.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import scale_by_trust_ratio
        >>> params = jnp.array([[3.0, 4.0], [0.03, 0.04]])  # two layers, norms 5 and .05
        >>> updates = jnp.array([[1.0, 0.0], [1.0, 0.0]])
        >>> adapt = scale_by_trust_ratio(stacked=1)
        >>> updates, _ = adapt.update(updates, adapt.init(params), params)
        >>> print(updates)
        [[5.   0.  ]
         [0.05 0.  ]]

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 3 and algorithm 2, with the scaling
        function phi the identity.
    """

    def update_fn(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        if params is None:
            raise ValueError("the trust ratio needs the parameters: update(updates, state, params)")

        def scale(adapts: bool, axes: int, update: jax.Array, param: jax.Array) -> jax.Array:
            if not adapts:
                return update
            return (update * trust_ratio(param, update, axes)).astype(update.dtype)

        adapts = per_leaf(mask, params, True)
        updates = jax.tree.map(scale, adapts, stacked_axes(stacked, params), updates, params)
        return updates, state

    return optax.GradientTransformation(optax.init_empty_state, update_fn)
