"""LARS, layerwise adaptive rate scaling: momentum with the layerwise adaptation of LAMB."""

from functools import partial

import optax

from bert_lamb.optim.checks import check_rates, require
from bert_lamb.optim.masks import PerLeaf, leaf_flags
from bert_lamb.optim.normalizing import shape_gradient
from bert_lamb.optim.norms import Norm
from bert_lamb.optim.trust_ratio import Bounds, scale_by_trust_ratio


def lars(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    mask: PerLeaf = None,
    *,
    trust_ratio_mask: PerLeaf = None,
    stacked: PerLeaf = None,
    clip_norm: float | None = None,
    phi_bounds: Bounds | None = None,
    norm: Norm | None = None,
    specs: PerLeaf = None,
    record: bool = False,
) -> optax.GradientTransformationExtraArgs:
    r"""LARS as the LAMB paper states and compares it.

    .. math::
        \begin{align*}
        m_t &\leftarrow \beta_1 m_{t-1} + (1 - \beta_1) (g_t + \lambda x_{t-1}), \\
        x_t &\leftarrow x_{t-1} - \alpha_t \frac{\phi(\|x_{t-1}\|)}{\|m_t\|} m_t .
        \end{align*}

    The momentum is inside of the normalized direction. `optax.lars` follows the original paper
    (arXiv 1708.03888) instead: there the gradient is scaled first, by a further coefficient, and
    the momentum runs over scaled gradients. Learning rates do not carry over from one to the
    other.

    A tensor that does not adapt takes the plain step of its momentum, whose size is that of the
    gradient.

    Args:
        learning_rate: a number, 0 or more, or a schedule of the count of updates applied.
        b1: decay rate of the momentum, in [0, 1); default 0.9.
        weight_decay: coefficient of the decay, a number of 0 or more, or a schedule; default 0.0.
        mask: which leaves decay, as in `lamb`; default None, every leaf.
        trust_ratio_mask: which leaves adapt, as in `lamb`; default None, every leaf.
        stacked: number of leading axes of each leaf that stack published tensors, as in `lamb`;
            default None, 0 everywhere.
        clip_norm: limit on the norm of the gradient over all leaves, more than 0; default None,
            no clipping.
        phi_bounds: limits on the norm of the parameters; default None, no limits.
        norm: function (array, axes) -> norms with the reduced axes kept; default None, the
            Euclidean norm.
        specs: PartitionSpecs inside `jax.shard_map`, as in `lamb`; default None.
        record: keep norms and ratios in the state, for `trust_ratios`; default False.

    Returns:
        An `optax.GradientTransformationExtraArgs`; its update needs the parameters.

    Raises:
        ValueError: a number is outside of its range; the message names it.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import lars
        >>> params = jnp.array([3.0, 4.0])
        >>> optimizer = lars(0.01)
        >>> gradient = jnp.array([0.0, 100.0])  # its length does not matter
        >>> updates, _ = optimizer.update(gradient, optimizer.init(params), params)
        >>> print(updates)
        [-0.   -0.05]

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 3, algorithm 1.
    """
    check_rates(learning_rate, weight_decay)
    require("b1", b1, lambda value: 0 <= value < 1, "a rate in [0, 1)")
    return optax.chain(
        shape_gradient(clip_norm, False, specs),
        optax.add_decayed_weights(weight_decay, mask=partial(leaf_flags, "mask", mask)),
        optax.ema(b1, debias=False),
        scale_by_trust_ratio(
            mask=trust_ratio_mask,
            stacked=stacked,
            phi_bounds=phi_bounds,
            norm=norm,
            specs=specs,
            record=record,
        ),
        optax.scale_by_learning_rate(learning_rate),
    )
