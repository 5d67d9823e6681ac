"""Updates whose gradient is not finite: left out, counted, and reported by the tensor's name."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require, require_transform
from bert_lamb.optim.masks import leaf_paths


class Skipped(NamedTuple):
    """Updates left out because their gradient was not finite.

    Attributes:
        in_row: i32 [], how many in a row, up to now.
        total: i32 [], how many in all.
        tensor: i32 [], index of the first leaf whose gradient was not finite at the latest such
            update, in the order of `jax.tree.leaves`; -1 where there was none.
    """

    in_row: jax.Array
    total: jax.Array
    tensor: jax.Array


class SkipState(NamedTuple):
    """State of `skip_nonfinite`.

    Attributes:
        skipped: the record of updates left out.
        inner: state of the wrapped optimizer.
    """

    skipped: Skipped
    inner: optax.OptState


def none_skipped() -> Skipped:
    """Returns the record before the first update."""
    zero = jnp.zeros((), jnp.int32)
    return Skipped(in_row=zero, total=zero, tensor=zero - 1)


def judge(squares: jax.Array, skipped: Skipped, limit: int) -> tuple[jax.Array, Skipped]:
    """Decides whether an update is applied.

    Args:
        squares: f32 [leaves], the sum of squares of each leaf's gradient.
        skipped: the record so far.
        limit: updates in a row after which none is applied any more.

    Returns:
        bool [], and the record with this update.
    """
    bad = ~jnp.isfinite(squares)
    apply = ~jnp.any(bad) & (skipped.in_row < limit)
    missed = (~apply).astype(jnp.int32)
    return apply, Skipped(
        in_row=(skipped.in_row + 1) * missed,
        total=skipped.total + missed,
        tensor=jnp.where(jnp.any(bad), jnp.argmax(bad), skipped.tensor).astype(jnp.int32),
    )


def skip_nonfinite(
    inner: optax.GradientTransformation, limit: int = 5
) -> optax.GradientTransformationExtraArgs:
    """Leaves out every update whose gradient has an infinite or undefined entry.

    Parameters, moments, counts and with them the learning rate then stay as they are. Unlike
    `optax.apply_if_finite`, which applies such an update after all when there are too many in a
    row, this one never does: after `limit` of them it stands still, finite gradients included,
    until `raise_if_stuck` tells the host to stop.

    Args:
        inner: the optimizer; `lamb` with its clipping, for example.
        limit: updates left out in a row after which training stands still, at least 1; default 5.

    Returns:
        An `optax.GradientTransformationExtraArgs` with the state `SkipState`.

    Raises:
        TypeError: `inner` is no optimizer.
        ValueError: `limit` is less than 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import lamb, skip_nonfinite
        >>> params = {"kernel": jnp.array([3.0, 4.0])}
        >>> optimizer = skip_nonfinite(lamb(0.01), limit=3)
        >>> state = optimizer.init(params)
        >>> gradient = {"kernel": jnp.array([jnp.inf, 1.0])}
        >>> updates, state = optimizer.update(gradient, state, params)
        >>> print(updates["kernel"], state.skipped.total)
        [0. 0.] 1
    """
    require("limit", limit, lambda value: value >= 1, "at least 1")
    require_transform(inner)
    wrapped = optax.with_extra_args_support(inner)

    def init_fn(params: optax.Params) -> SkipState:
        return SkipState(none_skipped(), wrapped.init(params))

    def update_fn(
        updates: optax.Updates,
        state: SkipState,
        params: optax.Params | None = None,
        **extra_args: object,
    ) -> tuple[optax.Updates, SkipState]:
        # Not the sum of squares, which can overflow where every entry is finite.
        finite = jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(updates)])
        apply, skipped = judge(jnp.where(finite, 0.0, jnp.inf), state.skipped, limit)
        new_updates, new_inner = wrapped.update(updates, state.inner, params, **extra_args)
        new_updates = jax.tree.map(lambda u: jnp.where(apply, u, jnp.zeros_like(u)), new_updates)
        inner = jax.tree.map(lambda new, old: jnp.where(apply, new, old), new_inner, state.inner)
        return new_updates, SkipState(skipped, inner)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def raise_if_stuck(state: SkipState, params: optax.Params, limit: int = 5) -> None:
    """Stops a run whose gradients stay non-finite; call it outside of jit, now and then.

    Args:
        state: of `skip_nonfinite`.
        params: pytree of parameters, for the name of the tensor.
        limit: the same as in `skip_nonfinite`; default 5.

    Raises:
        FloatingPointError: `limit` updates in a row were left out; names the first tensor.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import lamb, raise_if_stuck, skip_nonfinite
        >>> params = {"kernel": jnp.array([3.0, 4.0])}
        >>> optimizer = skip_nonfinite(lamb(0.01), limit=1)
        >>> gradient = {"kernel": jnp.array([jnp.nan, 1.0])}
        >>> _, state = optimizer.update(gradient, optimizer.init(params), params)
        >>> raise_if_stuck(state, params, limit=1)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FloatingPointError: gradient not finite in 1 update in a row, first in 'kernel': ...
    """
    in_row = int(state.skipped.in_row)
    if in_row >= limit:
        path = jax.tree.leaves(leaf_paths(params))[int(state.skipped.tensor)]
        raise FloatingPointError(
            f"gradient not finite in {in_row} update{'s' if in_row > 1 else ''} in a row, first in "
            f"{path!r}: lower the learning rate or look at the batch"
        )
