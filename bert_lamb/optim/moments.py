"""The moments of Adam as LAMB and its variants use them."""

import dataclasses
import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import require
from bert_lamb.optim.norms import wide

Nesterov = Literal["none", "first", "both"]


class Scalars(NamedTuple):
    """The numbers by which moments become a direction in one update, all arrays [].

    The numerator is m * mean + g * mean_ahead, the square of the denominator
    v * square + g^2 * square_ahead + eps_root.
    """

    mean: jax.Array
    mean_ahead: jax.Array
    square: jax.Array
    square_ahead: jax.Array
    eps: jax.Array
    eps_root: jax.Array


@dataclasses.dataclass(frozen=True)
class Moments:
    """The arguments of `scale_by_moments`, checked, and their meaning step by step."""

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    eps_root: float = 0.0
    bias_correction: bool = True
    nesterov: Nesterov = "none"

    def __post_init__(self) -> None:
        require("b1", self.b1, lambda value: 0 <= value < 1, "a rate in [0, 1)")
        require("b2", self.b2, lambda value: 0 <= value < 1, "a rate in [0, 1)")
        require("eps", self.eps, lambda value: value > 0, "more than 0")
        require("eps_root", self.eps_root, lambda value: value >= 0, "0 or more")
        if self.nesterov not in get_args(Nesterov):
            names = ", ".join(get_args(Nesterov))
            raise ValueError(f"nesterov = {self.nesterov!r}: expected one of {names}")

    def init(self, params: optax.Params, dtype: Any = None) -> optax.ScaleByAdamState:
        """Returns moments of 0 in `dtype`, or in that of each parameter."""
        if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"moment_dtype = {dtype}: expected a floating dtype")
        return optax.ScaleByAdamState(
            count=jnp.zeros([], jnp.int32),
            mu=optax.tree.zeros_like(params, dtype=dtype),
            nu=optax.tree.zeros_like(params, dtype=dtype),
        )

    def advance(
        self, gradient: optax.Updates, state: optax.ScaleByAdamState
    ) -> optax.ScaleByAdamState:
        """Returns the moments with one more gradient, in float32 at least."""

        def average(decay: float, moment: jax.Array, value: jax.Array) -> jax.Array:
            return decay * wide(moment) + (1 - decay) * value

        return optax.ScaleByAdamState(
            count=optax.safe_increment(state.count),
            mu=jax.tree.map(lambda g, m: average(self.b1, m, wide(g)), gradient, state.mu),
            nu=jax.tree.map(
                lambda g, v: average(self.b2, v, jnp.square(wide(g))), gradient, state.nu
            ),
        )

    def scalars(self, count: jax.Array) -> Scalars:
        """Returns the scalars of update number `count`."""
        mean = _weights(self.b1, count, self.bias_correction, self.nesterov != "none")
        square = _weights(self.b2, count, self.bias_correction, self.nesterov == "both")
        numbers = (*mean, *square, self.eps, self.eps_root)
        return Scalars(*(jnp.asarray(number, float) for number in numbers))

    def directions(
        self, gradient: optax.Updates, new: optax.ScaleByAdamState, scalars: Scalars
    ) -> optax.Updates:
        """Returns m / (sqrt(v) + eps) for every leaf, in float32 at least."""

        def direction(g: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            own = Scalars(*(x.astype(m.dtype) for x in scalars))
            mean, square = m * own.mean, v * own.square
            if self.nesterov != "none":
                mean += wide(g) * own.mean_ahead
            if self.nesterov == "both":
                square += jnp.square(wide(g)) * own.square_ahead
            if not isinstance(self.eps_root, (int, float)) or self.eps_root > 0:
                square += own.eps_root
            return mean / (jnp.sqrt(square) + own.eps)

        return jax.tree.map(direction, gradient, new.mu, new.nu)

    def stored(
        self, new: optax.ScaleByAdamState, like: optax.ScaleByAdamState
    ) -> optax.ScaleByAdamState:
        """Returns the moments in the dtypes of the state before."""
        return jax.tree.map(lambda x, old: x.astype(old.dtype), new, like)


def scale_by_moments(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    *,
    bias_correction: bool = True,
    nesterov: Nesterov = "none",
    moment_dtype: Any = None,
) -> optax.GradientTransformation:
    r"""Turns a gradient into the direction of Adam, m / (sqrt(v) + eps).

    Differs from `optax.scale_by_adam` in that the correction of the bias can be left out, in that
    Nesterov momentum can be used for the second moment too, and in that both moments can be
    stored in another dtype. The state is that of optax, `optax.ScaleByAdamState`.

    With t counting updates from 1, Nesterov momentum looks one update ahead:

    .. math::
        \hat m_t = \frac{\beta_1 m_t}{1 - \beta_1^{t+1}} + \frac{(1 - \beta_1) g_t}{1 - \beta_1^t}

    and "both" treats v and g^2 in the same way.

    Args:
        b1: decay rate of the first moment, in [0, 1); default 0.9.
        b2: decay rate of the second moment, in [0, 1); default 0.999.
        eps: added outside of the square root, more than 0; default 1e-06.
        eps_root: added inside the square root, 0 or more; default 0.0.
        bias_correction: divide the moments by 1 - b1^t and 1 - b2^t; default True.
        nesterov: default "none"; "first" looks ahead in the first moment (NAdam), "both" in both.
        moment_dtype: dtype in which both moments are stored; default None, that of the
            parameters. The arithmetic is in float32 at least.

    Returns:
        An `optax.GradientTransformation`.

    Raises:
        ValueError: a number is outside of its range, or `nesterov` is none of its names.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import scale_by_moments
        >>> moments = scale_by_moments()
        >>> params = jnp.zeros(2)
        >>> updates, state = moments.update(jnp.array([0.1, -20.0]), moments.init(params))
        >>> print(updates.round(3))
        [ 1. -1.]

    References:
        Kingma and Ba, `Adam <https://arxiv.org/abs/1412.6980>`_, 2015, algorithm 1; Dozat,
        `Incorporating Nesterov Momentum into Adam
        <https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ>`_, 2016, algorithm 8.
    """
    moments = Moments(b1, b2, eps, eps_root, bias_correction, nesterov)

    def init_fn(params: optax.Params) -> optax.ScaleByAdamState:
        return moments.init(params, moment_dtype)

    def update_fn(
        updates: optax.Updates, state: optax.ScaleByAdamState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.ScaleByAdamState]:
        del params
        new = moments.advance(updates, state)
        directions = moments.directions(updates, new, moments.scalars(new.count))
        directions = jax.tree.map(
            lambda u, g, m: u.astype(jnp.promote_types(g.dtype, m.dtype)),
            directions,
            updates,
            state.mu,
        )
        return directions, moments.stored(new, state)

    return optax.GradientTransformation(init_fn, update_fn)


def correction(decay: float, count: jax.Array) -> jax.Array:
    """Returns 1 - decay^count, which divides out the bias of a moment that started at 0.

    In float32 1 - 0.999 is wrong in its fifth digit; expm1 of the logarithm is not.
    """
    if isinstance(decay, jax.Array):  # traced, as `optax.inject_hyperparams` hands in
        return 1 - decay**count
    return -jnp.expm1(count * (math.log(decay) if decay > 0 else -math.inf))


def _weights(
    decay: float, count: jax.Array, bias_correction: bool, ahead: bool
) -> tuple[jax.Array | float, jax.Array | float]:
    """Returns the factors of the moment and of the newest value in the estimate."""
    now = correction(decay, count) if bias_correction else 1.0
    if not ahead:
        return 1 / now, 0.0
    later = correction(decay, count + 1) if bias_correction else 1.0
    return decay / later, (1 - decay) / now
