"""The layerwise adaptation of LAMB and LARS: one trust ratio per tensor of the published model."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_lamb.optim.masks import PerLeaf, leaf_flags
from bert_lamb.optim.norms import Norm, tensor_norms, wide
from bert_lamb.optim.sharding import spread_specs
from bert_lamb.optim.stacking import stacked_axes
from bert_lamb.optim.states import find_states

Bounds = tuple[float, float]


class TrustRatioState(NamedTuple):
    """What `scale_by_trust_ratio(record=True)` saw in the latest update, for each leaf.

    Attributes:
        weight_norm: pytree like the parameters of f32 [*stack], ||x|| of each published tensor.
        update_norm: the same for ||u||, the direction before it is scaled.
        trust_ratio: the same for the factor that was applied; 1 where the tensor does not adapt.
    """

    weight_norm: Any
    update_norm: Any
    trust_ratio: Any


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """How tensors adapt: the arguments of `scale_by_trust_ratio`, checked, and their meaning."""

    mask: PerLeaf = None
    stacked: PerLeaf = None
    phi_bounds: Bounds | None = None
    ratio_bounds: Bounds | None = None
    norm: Norm | None = None
    specs: PerLeaf = None
    record: bool = False

    def __post_init__(self) -> None:
        _check_bounds("phi_bounds", self.phi_bounds)
        _check_bounds("ratio_bounds", self.ratio_bounds)
        if self.norm is not None and self.specs is not None:
            raise ValueError("norm with specs: only the Euclidean norm can be summed over devices")

    def init(self, params: optax.Params) -> optax.EmptyState | TrustRatioState:
        """Returns the state before the first update."""
        if not self.record:
            return optax.EmptyState()
        axes = stacked_axes(self.stacked, params)

        def filled(value: float) -> Any:
            return jax.tree.map(
                lambda x, n: jnp.full(x.shape[:n], value, jnp.promote_types(x.dtype, jnp.float32)),
                params,
                axes,
            )

        return TrustRatioState(filled(0.0), filled(0.0), filled(1.0))

    def ratios(
        self, params: optax.Params, directions: optax.Updates
    ) -> tuple[Any, optax.EmptyState | TrustRatioState]:
        """Returns a pytree of ratios, [*stack, 1, ..., 1] each, and the state with them."""
        adapts = jax.tree.leaves(leaf_flags("trust_ratio_mask", self.mask, params))
        axes = jax.tree.leaves(stacked_axes(self.stacked, params))
        specs = spread_specs(self.specs, params)
        weights = jax.tree.leaves(params)
        # Over both trees, so that directions of another structure are an error.
        updates = jax.tree.leaves(jax.tree.map(lambda _, u: u, params, directions))
        structure = jax.tree.structure(params)

        seen = [i for i in range(len(weights)) if adapts[i] or self.record]
        norms = tensor_norms(
            [weights[i] for i in seen] + [updates[i] for i in seen],
            [axes[i] for i in seen] * 2,
            [specs[i] for i in seen] * 2,
            self.norm,
        )
        both = zip(norms[: len(seen)], norms[len(seen) :], strict=True)
        pairs = dict(zip(seen, both, strict=True))
        ratios = [
            _ratio(*pairs[i], self.phi_bounds, self.ratio_bounds)
            if adapts[i]
            else jnp.ones(x.shape[: axes[i]] + (1,) * (x.ndim - axes[i]), wide(x).dtype)
            for i, x in enumerate(weights)
        ]
        state: optax.EmptyState | TrustRatioState = optax.EmptyState()
        if self.record:
            columns = (*zip(*pairs.values(), strict=True), ratios)
            state = TrustRatioState(
                *(
                    jax.tree.unflatten(
                        structure,
                        [x.reshape(x.shape[:n]) for x, n in zip(column, axes, strict=True)],
                    )
                    for column in columns
                )
            )
        return jax.tree.unflatten(structure, ratios), state


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
    whole = [PartitionSpec()] * 2
    weight_norm, update_norm = tensor_norms([param, update], [stacked] * 2, whole)
    return _ratio(weight_norm, update_norm, None, None)


def scale_by_trust_ratio(
    *,
    mask: PerLeaf = None,
    stacked: PerLeaf = None,
    phi_bounds: Bounds | None = None,
    ratio_bounds: Bounds | None = None,
    norm: Norm | None = None,
    specs: PerLeaf = None,
    record: bool = False,
) -> optax.GradientTransformation:
    """Scales each tensor's update to the norm of the tensor.

    Differs from `optax.scale_by_trust_ratio` in that leaves can be left out, a leaf may hold
    several stacked tensors, and norms are taken in float32 whatever the dtype. A ratio is 1 where
    either norm is 0.

    The arithmetic is plain `jax.numpy`, so under `jax.jit` it follows the sharding of the
    parameters on any mesh. Inside `jax.shard_map`, where each device sees its slice alone, `specs`
    says how the leaves are cut, and the norms are summed over the devices that hold the rest.

    Args:
        mask: which leaves adapt: a pytree of bools shaped like the parameters or a prefix of
            them, or a function from the parameters to one; the others pass unchanged. Default
            None, every leaf adapts.
        stacked: how many leading axes of each leaf stack published tensors: a pytree of ints
            (0 for a leaf that is one tensor), a prefix of one, or a function from the parameters
            to one. Layers stored as [L, ...] for `jax.lax.scan` have 1; so has a fused
            [3, D, N, H] query, key and value; both at once, [L, 3, D, N, H], have 2. Default
            None, every leaf is one tensor. A count is never guessed from a shape.
        phi_bounds: limits on the norm of the parameters, the paper's gamma_l and gamma_u;
            default None, no limits, as in the authors' runs.
        ratio_bounds: limits on the ratio itself; default None, no limits.
        norm: function (array, axes) -> norms with the reduced axes kept; default None, the
            Euclidean norm. Not to be combined with `specs`.
        specs: inside `jax.shard_map`, the PartitionSpecs of the parameters, as a pytree or a
            prefix of one; default None, every device has whole leaves.
        record: keep weight norm, update norm and ratio of each tensor in the state, where
            `trust_ratios` finds them; default False.

    Returns:
        An `optax.GradientTransformation`; its update needs the parameters. Its state is empty, or
        a `TrustRatioState` if `record` is set.

    Raises:
        ValueError: bounds are no pair of rising numbers of 0 or more, or `norm` comes with
            `specs`; at the update, for a count of stacked axes that a leaf does not have, or
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
        <https://arxiv.org/abs/1904.00962>`_, 2020, section 3 and algorithm 2.
    """
    adaptation = Adaptation(mask, stacked, phi_bounds, ratio_bounds, norm, specs, record)

    def update_fn(
        updates: optax.Updates,
        state: optax.EmptyState | TrustRatioState,
        params: optax.Params | None = None,
    ) -> tuple[optax.Updates, optax.EmptyState | TrustRatioState]:
        if params is None:
            raise ValueError("the trust ratio needs the parameters: update(updates, state, params)")
        ratios, state = adaptation.ratios(params, updates)
        updates = jax.tree.map(lambda r, u: (r * wide(u)).astype(u.dtype), ratios, updates)
        return updates, state

    return optax.GradientTransformation(adaptation.init, update_fn)


def trust_ratios(state: optax.OptState) -> TrustRatioState:
    """Finds the recorded norms and ratios in the state of any chain of transforms.

    Args:
        state: of an optimizer built with `record=True`, alone or inside other transforms.

    Raises:
        ValueError: nothing was recorded in this state.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import lamb, trust_ratios
        >>> params = {"kernel": jnp.array([[3.0], [4.0]])}
        >>> optimizer = lamb(0.01, record=True)
        >>> _, state = optimizer.update(params, optimizer.init(params), params)
        >>> print(trust_ratios(state).weight_norm["kernel"])
        5.0

    References:
        You et al., arXiv 1904.00962, appendix on trust ratios, which plots them by layer.
    """
    found = find_trust_ratios(state)
    if found is None:
        raise ValueError("no trust ratios in this state: build the optimizer with record=True")
    return found


def find_trust_ratios(state: optax.OptState) -> TrustRatioState | None:
    """As `trust_ratios`, but None where nothing was recorded."""
    return next(iter(find_states(state, TrustRatioState)), None)


def _ratio(
    weight_norm: jax.Array,
    update_norm: jax.Array,
    phi_bounds: Bounds | None,
    ratio_bounds: Bounds | None,
) -> jax.Array:
    defined = (weight_norm > 0) & (update_norm > 0)
    phi = weight_norm if phi_bounds is None else jnp.clip(weight_norm, *phi_bounds)
    ratio = phi / jnp.where(defined, update_norm, 1)
    if ratio_bounds is not None:
        ratio = jnp.clip(ratio, *ratio_bounds)
    return jnp.where(defined, ratio, 1)


def _check_bounds(name: str, bounds: Bounds | None) -> None:
    if bounds is None:
        return
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (0 <= low <= high and high > 0):
        raise ValueError(f"{name} = {bounds}: expected two numbers, 0 <= lower <= upper")
