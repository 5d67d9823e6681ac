"""LANS: LAMB on normalized gradients, with a step along momentum and one along the gradient."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import check_rates
from bert_lamb.optim.masks import PerLeaf
from bert_lamb.optim.moments import Moments
from bert_lamb.optim.normalizing import normalize_per_tensor
from bert_lamb.optim.norms import Norm, wide
from bert_lamb.optim.trust_ratio import Adaptation, Bounds, TrustRatioState
from bert_lamb.optim.weight_decay import add_decay, decay_rate


class LansState(NamedTuple):
    """State of `scale_by_lans`.

    Attributes:
        moments: count and moments of the normalized gradients.
        adaptation: empty, or what was recorded of the step along the momentum.
    """

    moments: optax.ScaleByAdamState
    adaptation: optax.EmptyState | TrustRatioState


def scale_by_lans(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    mask: PerLeaf = None,
    *,
    moment_dtype: Any = None,
    adaptation: Adaptation = Adaptation(),  # noqa: B008  (frozen)
) -> optax.GradientTransformation:
    """Turns normalized gradients into the direction of LANS; arguments and errors as in `lans`.

    How tensors adapt is said by `adaptation`, as in `scale_by_lamb`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import scale_by_lans
        >>> direction = scale_by_lans()
        >>> params = jnp.array([3.0, 4.0])
        >>> updates, _ = direction.update(jnp.array([0.0, 1.0]), direction.init(params), params)
        >>> print(updates.round(3))
        [0. 5.]

    References:
        Zheng et al., `Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes
        <https://arxiv.org/abs/2006.13484>`_, 2020, algorithm 2.
    """
    moments = Moments(b1, b2, eps)

    def init_fn(params: optax.Params) -> LansState:
        return LansState(moments.init(params, moment_dtype), adaptation.init(params))

    def update_fn(
        updates: optax.Updates, state: LansState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, LansState]:
        if params is None:
            raise ValueError("LANS needs the parameters: update(updates, state, params)")
        rate = decay_rate(weight_decay, state.moments.count)
        new = moments.advance(updates, state.moments)
        scalars = moments.scalars(new.count)

        along_momentum = moments.directions(updates, new, scalars)
        # The gradient itself in the place of the momentum, over the same denominator.
        newest = new._replace(mu=jax.tree.map(wide, updates))
        one = scalars._replace(mean=jnp.ones_like(scalars.mean))
        along_gradient = moments.directions(updates, newest, one)

        along_momentum = add_decay(along_momentum, params, mask, rate)
        along_gradient = add_decay(along_gradient, params, mask, rate)
        momentum_ratios, adapted = adaptation.ratios(params, along_momentum)
        gradient_ratios, _ = adaptation.ratios(params, along_gradient)
        updates = jax.tree.map(
            lambda g, x, r, m, s, c: (b1 * r * m + (1 - b1) * s * c).astype(
                jnp.promote_types(g.dtype, x.dtype)
            ),
            updates,
            params,
            momentum_ratios,
            along_momentum,
            gradient_ratios,
            along_gradient,
        )
        return updates, LansState(moments.stored(new, state.moments), adapted)

    return optax.GradientTransformation(init_fn, update_fn)


def lans(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    mask: PerLeaf = None,
    *,
    trust_ratio_mask: PerLeaf = None,
    stacked: PerLeaf = None,
    phi_bounds: Bounds | None = None,
    norm: Norm | None = None,
    moment_dtype: Any = None,
    specs: PerLeaf = None,
    record: bool = False,
) -> optax.GradientTransformationExtraArgs:
    r"""LANS: LAMB on normalized gradients, with Nesterov momentum in the normalized direction.

    With the moments m and v of the gradients after each tensor's is divided by its norm,

    .. math::
        \begin{align*}
        \tilde g_t &= g_t / \|g_t\|, &
        d_t &= \sqrt{v_t / (1 - \beta_2^t)} + \varepsilon, \\
        r_t &= \frac{m_t / (1 - \beta_1^t)}{d_t} + \lambda x_{t-1}, &
        c_t &= \frac{\tilde g_t}{d_t} + \lambda x_{t-1}, \\
        x_t &\leftarrow x_{t-1} - \alpha_t \phi(\|x_{t-1}\|) \left(
            \beta_1 \frac{r_t}{\|r_t\|} + (1 - \beta_1) \frac{c_t}{\|c_t\|} \right) .
        \end{align*}

    The length of the gradient does not matter, so there is no limit on it to set. The authors use
    it with `warmup_constant_decay`.

    Args:
        learning_rate: a number, 0 or more, or a schedule of the count of updates applied.
        b1: decay rate of the first moment and weight of the step along it, in [0, 1); default
            0.9.
        b2: decay rate of the second moment, in [0, 1); default 0.999.
        eps: added outside of the square root, more than 0; default 1e-06.
        weight_decay: coefficient of the decay, a number of 0 or more, or a schedule; default 0.0.
        mask: which leaves decay, as in `lamb`; default None, every leaf.
        trust_ratio_mask: which leaves adapt, as in `lamb`; default None, every leaf. The
            gradients of the others are normalized all the same.
        stacked: number of leading axes of each leaf that stack published tensors, as in `lamb`;
            default None, 0 everywhere.
        phi_bounds: limits on the norm of the parameters; default None, no limits.
        norm: function (array, axes) -> norms with the reduced axes kept, for the trust ratios;
            default None, the Euclidean norm.
        moment_dtype: dtype in which the moments are stored; default None, that of the
            parameters.
        specs: PartitionSpecs inside `jax.shard_map`, as in `lamb`; default None.
        record: keep norms and ratios of the step along the momentum in the state, for
            `trust_ratios`; default False.

    Returns:
        An `optax.GradientTransformationExtraArgs`; its update needs the parameters.

    Raises:
        ValueError: a number is outside of its range; the message names it.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import lans
        >>> params = jnp.array([3.0, 4.0])
        >>> optimizer = lans(0.01)
        >>> gradient = jnp.array([0.0, 100.0])
        >>> updates, _ = optimizer.update(gradient, optimizer.init(params), params)
        >>> print(updates.round(3))
        [-0.   -0.05]

    References:
        Zheng et al., `Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes
        <https://arxiv.org/abs/2006.13484>`_, 2020, algorithm 2.
    """
    check_rates(learning_rate, weight_decay)
    return optax.chain(
        normalize_per_tensor(stacked=stacked, specs=specs),
        scale_by_lans(
            b1,
            b2,
            eps,
            weight_decay,
            mask,
            moment_dtype=moment_dtype,
            adaptation=Adaptation(trust_ratio_mask, stacked, phi_bounds, None, norm, specs, record),
        ),
        optax.scale_by_learning_rate(learning_rate),
    )
