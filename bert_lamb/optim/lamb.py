"""LAMB, layerwise adaptive moments for large batches."""

import optax

from bert_lamb.optim.checks import require
from bert_lamb.optim.clipping import clip_by_global_norm
from bert_lamb.optim.masks import PerLeaf
from bert_lamb.optim.trust_ratio import scale_by_trust_ratio


def lamb(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    mask: PerLeaf = None,
    *,
    trust_ratio_mask: PerLeaf = None,
    stacked: PerLeaf = None,
    clip_norm: float | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""LAMB: Adam whose step for each tensor is rescaled to the norm of that tensor.

    With g the mean gradient of the global batch, x one tensor of the published model and t
    counting updates from 1,

    .. math::
        \begin{align*}
        m_t &\leftarrow \beta_1 m_{t-1} + (1 - \beta_1) g_t, &
        v_t &\leftarrow \beta_2 v_{t-1} + (1 - \beta_2) g_t^2, \\
        u_t &\leftarrow \frac{m_t / (1 - \beta_1^t)}
            {\sqrt{v_t / (1 - \beta_2^t) + \bar\varepsilon} + \varepsilon} + \lambda x_{t-1}, &
        x_t &\leftarrow x_{t-1} - \alpha_t \frac{\|x_{t-1}\|}{\|u_t\|} u_t .
        \end{align*}

    This is the final version of the paper: the moments are corrected for their bias and the decay
    is part of the normalized direction. The ratio is 1 where either norm is 0.

    Called with the arguments of `optax.lamb` alone it gives the numbers of `optax.lamb`. The
    keyword-only arguments are what pretraining BERT needs besides: the published recipes leave
    biases and layer norms out of decay and adaptation alike, layers stacked in one array need a
    ratio each, and the mean gradient is clipped.

    Args:
        learning_rate: a number, 0 or more, or a schedule of the count of updates applied.
        b1: decay rate of the first moment, in [0, 1); default 0.9.
        b2: decay rate of the second moment, in [0, 1); default 0.999.
        eps: added outside of the square root, more than 0; default 1e-06.
        eps_root: added inside the square root, 0 or more; default 0.0. Not part of LAMB; for
            derivatives through the update.
        weight_decay: coefficient of the decay, a number of 0 or more, or a schedule; default 0.0.
        mask: which leaves decay: a pytree of bools shaped like the parameters or a prefix of
            them, or a function from the parameters to one, such as `path_mask`; default None,
            every leaf.
        trust_ratio_mask: which leaves adapt, in the same form; the others take the plain Adam
            step. Default None, every leaf.
        stacked: number of leading axes of each leaf that stack published tensors, as a pytree of
            ints, a prefix of one, or a function from the parameters to one: 1 for layers stored
            as [L, ...], 0 for a leaf that is one tensor. Default None, 0 everywhere; never
            guessed from a shape.
        clip_norm: limit on the norm of the gradient over all leaves, more than 0; default None,
            no clipping.

    Returns:
        An `optax.GradientTransformationExtraArgs`; its update needs the parameters.

    Raises:
        ValueError: a number is outside of its range; the message names it.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from bert_lamb.optim import lamb, path_mask
        >>> params = {"dense": {"kernel": jnp.array([[3.0], [4.0]]), "bias": jnp.zeros(1)}}
        >>> x, y = jnp.array([[1.0, 2.0], [2.0, 1.0]]), jnp.array([[5.0], [4.0]])
        >>> def loss(params):
        ...     dense = params["dense"]
        ...     return jnp.mean((x @ dense["kernel"] + dense["bias"] - y) ** 2)
        >>> mask = path_mask(params, exclude=(".*/bias",))
        >>> optimizer = lamb(
        ...     0.05, weight_decay=0.01, mask=mask, trust_ratio_mask=mask, clip_norm=1.0
        ... )
        >>> state = optimizer.init(params)
        >>> for _ in range(5):
        ...     print(f"{loss(params):.2f}")
        ...     gradients = jax.grad(loss)(params)
        ...     updates, state = optimizer.update(gradients, state, params)
        ...     params = optax.apply_updates(params, updates)
        36.00
        29.37
        23.67
        18.80
        14.68

    References:
        You et al., `Large Batch Optimization for Deep Learning: Training BERT in 76 minutes
        <https://arxiv.org/abs/1904.00962>`_, 2020 (version 5), section 3, algorithm 2.
    """
    require("learning_rate", learning_rate, lambda value: value >= 0, "0 or more, or a schedule")
    require("b1", b1, lambda value: 0 <= value < 1, "a rate in [0, 1)")
    require("b2", b2, lambda value: 0 <= value < 1, "a rate in [0, 1)")
    require("eps", eps, lambda value: value > 0, "more than 0")
    require("eps_root", eps_root, lambda value: value >= 0, "0 or more")
    require("weight_decay", weight_decay, lambda value: value >= 0, "0 or more, or a schedule")
    if clip_norm is not None:
        require("clip_norm", clip_norm, lambda value: value > 0, "more than 0, or None")
    return optax.chain(
        optax.identity() if clip_norm is None else clip_by_global_norm(clip_norm),
        optax.scale_by_adam(b1=b1, b2=b2, eps=eps, eps_root=eps_root),
        optax.add_decayed_weights(weight_decay, mask=mask),
        scale_by_trust_ratio(mask=trust_ratio_mask, stacked=stacked),
        optax.scale_by_learning_rate(learning_rate),
    )
