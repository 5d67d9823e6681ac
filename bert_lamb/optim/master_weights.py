"""Parameters in half precision, updated through copies in float32."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require_transform


class MasterWeightsState(NamedTuple):
    """State of `with_master_weights`.

    Attributes:
        masters: pytree like the parameters: the float32 copies, and `optax.MaskedNode` for
            parameters that are float32 or wider themselves.
        inner: state of the wrapped optimizer, made for the copies.
    """

    masters: Any
    inner: optax.OptState


def with_master_weights(
    inner: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """Runs an optimizer on float32 copies of parameters held in bfloat16 or float16.

    A weight of 1 in bfloat16 has its next neighbours at 1 +- 2^-8 or so: updates of 1e-3 round
    away and it never moves. The copies take every update in full, and the parameters follow them
    rounded. Moments and norms are those of the copies, so they are float32 too.

    Args:
        inner: the optimizer; `lamb`, for example. Wrap it last: what is outside sees updates, not
            copies.

    Returns:
        An `optax.GradientTransformationExtraArgs` whose update needs the parameters. Its updates
        are float32, the difference between the rounded copy and the parameter, which
        `optax.apply_updates` adds in float32 before it rounds.

    Raises:
        TypeError: `inner` is no optimizer.
        ValueError: at the update, where the parameters are not passed.

    Examples:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from bert_lamb.optim import lamb, with_master_weights
        >>> params = jnp.ones(4, jnp.bfloat16)
        >>> optimizer = with_master_weights(lamb(1e-3))
        >>> state = optimizer.init(params)
        >>> for _ in range(3):
        ...     gradient = jnp.ones(4, jnp.bfloat16)
        ...     updates, state = optimizer.update(gradient, state, params)
        ...     params = optax.apply_updates(params, updates)
        >>> print(params, state.masters)
        [0.996094 0.996094 0.996094 0.996094] [0.997003 0.997003 0.997003 0.997003]

    References:
        Micikevicius et al., `Mixed Precision Training <https://arxiv.org/abs/1710.03740>`_, 2018,
        section 3.1.
    """
    require_transform(inner)
    wrapped = optax.with_extra_args_support(inner)

    def init_fn(params: optax.Params) -> MasterWeightsState:
        masters = jax.tree.map(
            lambda x: x.astype(jnp.float32) if _is_half(x) else optax.MaskedNode(), params
        )
        return MasterWeightsState(masters, wrapped.init(_current(masters, params)))

    def update_fn(
        updates: optax.Updates,
        state: MasterWeightsState,
        params: optax.Params | None = None,
        **extra_args: object,
    ) -> tuple[optax.Updates, MasterWeightsState]:
        if params is None:
            raise ValueError("master weights need the parameters: update(updates, state, params)")
        before = _current(state.masters, params)
        updates = jax.tree.map(lambda g, x: g.astype(x.dtype), updates, before)
        updates, inner_state = wrapped.update(updates, state.inner, before, **extra_args)
        after = optax.apply_updates(before, updates)
        masters = jax.tree.map(
            lambda x, new: new if _is_half(x) else optax.MaskedNode(), params, after
        )
        updates = jax.tree.map(
            lambda x, new, u: (
                new.astype(x.dtype).astype(jnp.float32) - x.astype(jnp.float32)
                if _is_half(x)
                else u
            ),
            params,
            after,
            updates,
        )
        return updates, MasterWeightsState(masters, inner_state)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _is_half(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits < 32


def _current(masters: Any, params: optax.Params) -> Any:
    return jax.tree.map(
        lambda master, x: x if isinstance(master, optax.MaskedNode) else master,
        masters,
        params,
        is_leaf=lambda x: isinstance(x, optax.MaskedNode),
    )
