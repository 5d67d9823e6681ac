"""AdamW as a baseline for LAMB: the same masks, clipping and moments, without the trust ratio."""

from functools import partial
from typing import Any

import optax

from bert_lamb.optim.checks import check_rates
from bert_lamb.optim.masks import PerLeaf, leaf_flags
from bert_lamb.optim.moments import scale_by_moments
from bert_lamb.optim.normalizing import shape_gradient


def adamw(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    mask: PerLeaf = None,
    *,
    clip_norm: float | None = None,
    bias_correction: bool = True,
    moment_dtype: Any = None,
    specs: PerLeaf = None,
) -> optax.GradientTransformationExtraArgs:
    r"""AdamW with the arguments of `lamb`, so that one can stand in for the other.

    .. math::
        x_t \leftarrow x_{t-1} - \alpha_t \left( \frac{m_t / (1 - \beta_1^t)}
            {\sqrt{v_t / (1 - \beta_2^t) + \bar\varepsilon} + \varepsilon}
            + \lambda x_{t-1} \right)

    With `mask=path_mask`, `eps=1e-6`, `weight_decay=0.01`, `clip_norm=1.0` and
    `bias_correction=False` it is the optimizer of Google's BERT.

    Args:
        learning_rate: a number, 0 or more, or a schedule of the count of updates applied.
        b1: decay rate of the first moment, in [0, 1); default 0.9.
        b2: decay rate of the second moment, in [0, 1); default 0.999.
        eps: added outside of the square root, more than 0; default 1e-06.
        eps_root: added inside the square root, 0 or more; default 0.0.
        weight_decay: coefficient of the decay, a number of 0 or more, or a schedule; default 0.0.
        mask: which leaves decay, as in `lamb`; default None, every leaf.
        clip_norm: limit on the norm of the gradient over all leaves, more than 0; default None,
            no clipping.
        bias_correction: divide the moments by 1 - b1^t and 1 - b2^t; default True.
        moment_dtype: dtype in which the moments are stored; default None, that of the
            parameters.
        specs: PartitionSpecs inside `jax.shard_map`, as in `lamb`; only clipping needs them.
            Default None.

    Returns:
        An `optax.GradientTransformationExtraArgs`; its update needs the parameters.

    Raises:
        ValueError: a number is outside of its range; the message names it.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import adamw, path_mask
        >>> params = {"dense": {"kernel": jnp.ones([2, 2]), "bias": jnp.zeros(2)}}
        >>> optimizer = adamw(1e-3, weight_decay=0.01, mask=path_mask(params, (".*/bias",)))
        >>> updates, _ = optimizer.update(params, optimizer.init(params), params)
        >>> print(updates["dense"]["bias"])
        [-0. -0.]

    References:
        Loshchilov and Hutter, `Decoupled Weight Decay Regularization
        <https://arxiv.org/abs/1711.05101>`_, 2019, algorithm 2.
    """
    check_rates(learning_rate, weight_decay)
    return optax.chain(
        shape_gradient(clip_norm, False, specs),
        scale_by_moments(
            b1, b2, eps, eps_root, bias_correction=bias_correction, moment_dtype=moment_dtype
        ),
        optax.add_decayed_weights(weight_decay, mask=partial(leaf_flags, "mask", mask)),
        optax.scale_by_learning_rate(learning_rate),
    )
