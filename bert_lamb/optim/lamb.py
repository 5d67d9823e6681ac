"""LAMB, layerwise adaptive moments for large batches, and its variants by name."""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax

from bert_lamb.optim.checks import check_rates
from bert_lamb.optim.masks import PerLeaf
from bert_lamb.optim.moments import Moments, Nesterov, Scalars
from bert_lamb.optim.normalizing import shape_gradient
from bert_lamb.optim.norms import Norm
from bert_lamb.optim.trust_ratio import Adaptation, Bounds, TrustRatioState
from bert_lamb.optim.weight_decay import add_decay, decay_rate

Variant = Literal["v5", "v3", "nvlamb", "apex", "lambc", "bounded"]


class _Variant(NamedTuple):
    """How a variant differs from the final version of the paper."""

    bias_correction: bool = True
    adapts: Literal["mask", "all", "decaying"] = "mask"
    clip_norm: float | None = None
    ratio_bounds: Bounds | None = None


_VARIANTS: dict[str, _Variant] = {
    "v5": _Variant(),
    "v3": _Variant(bias_correction=False),
    "nvlamb": _Variant(adapts="all", clip_norm=1.0),
    "apex": _Variant(adapts="decaying", clip_norm=1.0),
    "lambc": _Variant(ratio_bounds=(0.0, 1.0)),
    "bounded": _Variant(ratio_bounds=(0.01, 10.0)),
}


class LambState(NamedTuple):
    """State of `scale_by_lamb`.

    Attributes:
        moments: count, first and second moment.
        adaptation: empty, or what was recorded of the trust ratios.
    """

    moments: optax.ScaleByAdamState
    adaptation: optax.EmptyState | TrustRatioState


def scale_by_lamb(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    mask: PerLeaf = None,
    *,
    bias_correction: bool = True,
    nesterov: Nesterov = "none",
    moment_dtype: Any = None,
    adaptation: Adaptation = Adaptation(),  # noqa: B008  (frozen)
) -> optax.GradientTransformation:
    """Turns a gradient into the direction of LAMB, in one transform.

    It is the chain of `scale_by_moments`, `optax.add_decayed_weights` and `scale_by_trust_ratio`,
    number for number, but computes the direction twice instead of keeping it: once for its norm
    and once to scale it. The direction is as large as the parameters and cheap to compute from
    the moments, so this saves one of six arrays and the time to write and read it.

    Args:
        b1: as in `lamb`; default 0.9.
        b2: as in `lamb`; default 0.999.
        eps: as in `lamb`; default 1e-06.
        eps_root: as in `lamb`; default 0.0.
        weight_decay: as in `lamb`; default 0.0.
        mask: which leaves decay, as in `lamb`; default None, every leaf.
        bias_correction: divide the moments by 1 - b1^t and 1 - b2^t; default True.
        nesterov: as in `lamb`; default "none".
        moment_dtype: as in `lamb`; default None.
        adaptation: how tensors adapt: the arguments of `scale_by_trust_ratio`; default
            Adaptation().

    Returns:
        An `optax.GradientTransformation`; its update needs the parameters.

    Raises:
        ValueError: as in `lamb`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import scale_by_lamb
        >>> params = jnp.array([3.0, 4.0])
        >>> direction = scale_by_lamb()
        >>> updates, _ = direction.update(jnp.array([0.0, 7.0]), direction.init(params), params)
        >>> print(updates.round(3))
        [0. 5.]

    References:
        You et al., arXiv 1904.00962, algorithm 2.
    """
    moments = Moments(b1, b2, eps, eps_root, bias_correction, nesterov)

    def init_fn(params: optax.Params) -> LambState:
        return LambState(moments.init(params, moment_dtype), adaptation.init(params))

    def update_fn(
        updates: optax.Updates, state: LambState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, LambState]:
        if params is None:
            raise ValueError("LAMB needs the parameters: update(updates, state, params)")
        new = moments.advance(updates, state.moments)

        def directions(scalars: Scalars, rate: jax.Array) -> optax.Updates:
            return add_decay(moments.directions(updates, new, scalars), params, mask, rate)

        scalars = (moments.scalars(new.count), decay_rate(weight_decay, state.moments.count))
        ratios, adapted = adaptation.ratios(params, directions(*scalars))
        # Behind the barrier the compiler cannot see that the scalars are the same, or it would
        # merge the two computations and keep the direction in memory in between.
        again = directions(*jax.lax.optimization_barrier(scalars))
        updates = jax.tree.map(
            lambda r, u, g, x: (r * u).astype(jnp.promote_types(g.dtype, x.dtype)),
            ratios,
            again,
            updates,
            params,
        )
        return updates, LambState(moments.stored(new, state.moments), adapted)

    return optax.GradientTransformation(init_fn, update_fn)


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
    variant: Variant = "v5",
    nesterov: Nesterov = "none",
    pre_normalize: bool = False,
    phi_bounds: Bounds | None = None,
    ratio_bounds: Bounds | None = None,
    norm: Norm | None = None,
    moment_dtype: Any = None,
    specs: PerLeaf = None,
    record: bool = False,
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
        x_t &\leftarrow x_{t-1} - \alpha_t \frac{\phi(\|x_{t-1}\|)}{\|u_t\|} u_t .
        \end{align*}

    This is the final version of the paper: the moments are corrected for their bias and the decay
    is part of the normalized direction. The ratio is 1 where either norm is 0.

    Called with the arguments of `optax.lamb` alone it gives the numbers of `optax.lamb`. The
    keyword-only arguments are what pretraining BERT needs besides: the published recipes leave
    biases and layer norms out of decay and adaptation alike, layers stacked in one array need a
    ratio each, and the mean gradient is clipped.

    Variants that public code runs, each a change to the above:

    - "v5": none; the final version of the paper.
    - "v3": no correction of the bias; the paper's third version, and ALBERT.
    - "nvlamb": the gradient is divided by its norm where that is above 1, and every tensor
      adapts; NVIDIA.
    - "apex": as "nvlamb", but only what decays adapts; NVIDIA's Apex.
    - "lambc": the ratio is at most 1.
    - "bounded": the ratio lies within `ratio_bounds`, by default (.01, 10); DeepSpeed.

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
            step. Default None, every leaf. Variants that decide this themselves refuse it.
        stacked: number of leading axes of each leaf that stack published tensors, as a pytree of
            ints, a prefix of one, or a function from the parameters to one: 1 for layers stored
            as [L, ...], 0 for a leaf that is one tensor. Default None, 0 everywhere; never
            guessed from a shape.
        clip_norm: limit on the norm of the gradient over all leaves, more than 0; default None,
            the variant's own: 1 for "nvlamb" and "apex", no clipping for the others.
        variant: default "v5"; the names above.
        nesterov: default "none"; "first" is N-LAMB, "both" is NN-LAMB: Nesterov momentum in the
            first moment, or in both.
        pre_normalize: divide the gradient by its norm over all leaves, large or small; default
            False. Not to be combined with clipping.
        phi_bounds: limits (gamma_l, gamma_u) on the norm of the parameters; default None, no
            limits, as in the authors' runs.
        ratio_bounds: limits on the ratio, for the variant "bounded" only; default None, which is
            (.01, 10) there.
        norm: function (array, axes) -> norms with the reduced axes kept; default None, the
            Euclidean norm.
        moment_dtype: dtype in which the moments are stored; default None, that of the
            parameters.
        specs: inside `jax.shard_map`, the PartitionSpecs of the parameters, moments and
            gradients, of which each device then has its slice; norms are summed over the devices.
            Default None, whole arrays or plain `jax.jit` on any mesh.
        record: keep weight norm, update norm and trust ratio of every published tensor in the
            state, for `trust_ratios`; default False.

    Returns:
        An `optax.GradientTransformationExtraArgs`; its update needs the parameters.

    Raises:
        ValueError: a number is outside of its range, a name is unknown, or two arguments
            exclude each other; the message names them.

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
        <https://arxiv.org/abs/1904.00962>`_, 2020 (version 5), section 3, algorithm 2; N-LAMB and
        NN-LAMB in its appendix.
    """
    if variant not in _VARIANTS:
        raise ValueError(f"variant = {variant!r}: expected one of {', '.join(get_args(Variant))}")
    chosen = _VARIANTS[variant]
    if ratio_bounds is not None and variant != "bounded":
        raise ValueError(f'ratio_bounds with variant = {variant!r}: use variant = "bounded"')
    if trust_ratio_mask is not None and chosen.adapts != "mask":
        raise ValueError(
            f"trust_ratio_mask with variant = {variant!r}: this variant adapts "
            f"{'every tensor' if chosen.adapts == 'all' else 'what decays'}; use another variant"
        )
    if chosen.adapts == "decaying":
        never = not callable(weight_decay) and weight_decay == 0
        trust_ratio_mask = False if never else mask
    check_rates(learning_rate, weight_decay)
    return optax.chain(
        shape_gradient(chosen.clip_norm if clip_norm is None else clip_norm, pre_normalize, specs),
        scale_by_lamb(
            b1,
            b2,
            eps,
            eps_root,
            weight_decay,
            mask,
            bias_correction=chosen.bias_correction,
            nesterov=nesterov,
            moment_dtype=moment_dtype,
            adaptation=Adaptation(
                trust_ratio_mask,
                stacked,
                phi_bounds,
                chosen.ratio_bounds if ratio_bounds is None else ratio_bounds,
                norm,
                specs,
                record,
            ),
        ),
        optax.scale_by_learning_rate(learning_rate),
    )
