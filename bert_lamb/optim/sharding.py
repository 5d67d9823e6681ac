"""Optimizers inside `jax.shard_map`: how leaves are cut, and sums over the devices that hold them.

Under plain `jax.jit` none of this is needed: there the compiler adds the reductions itself.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_lamb.optim.masks import PerLeaf, per_leaf


def state_specs(state: optax.OptState, params: optax.Params, specs: PerLeaf) -> Any:
    """Returns the PartitionSpecs of an optimizer's state, for `jax.shard_map`.

    Moments are cut like the parameters they belong to, norms recorded for stacked tensors like
    the stacked axes of these, and everything else is whole on every device.

    Args:
        state: of the optimizer, arrays or shapes, as `jax.eval_shape(optimizer.init, params)`
            gives them.
        params: pytree of whole parameters, arrays or shapes.
        specs: PartitionSpecs of the parameters, shaped like them or a prefix.

    Returns:
        A pytree like `state`.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> from bert_lamb.optim import lars, state_specs
        >>> params = {"kernel": jnp.ones([8, 4]), "bias": jnp.ones(4)}
        >>> state = jax.eval_shape(lars(0.01).init, params)
        >>> print(state_specs(state, params, {"kernel": P("data"), "bias": P()})[2].ema)
        {'bias': P(), 'kernel': P('data',)}
    """
    structure: Any = jax.tree.structure(params)
    cuts = jax.tree.unflatten(structure, spread_specs(specs, params))

    def like_params(part: Any) -> bool:
        return structure == jax.tree.structure(part)

    def cut(part: Any) -> Any:
        if not like_params(part):
            return PartitionSpec()
        return jax.tree.map(lambda x, spec: PartitionSpec(*spec[: len(x.shape)]), part, cuts)

    return jax.tree.map(cut, state, is_leaf=like_params)


def spread_specs(specs: PerLeaf, tree: optax.Params) -> list[PartitionSpec]:
    """Returns one PartitionSpec per leaf of `tree`, in the order of `jax.tree.leaves`."""
    return jax.tree.leaves(
        per_leaf(
            specs,
            tree,
            PartitionSpec(),
            is_leaf=lambda x: isinstance(x, PartitionSpec),
            name="specs",
        ),
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


def split_over(spec: PartitionSpec, first: int = 0) -> tuple[str, ...]:
    """Returns the mesh axes that split the dimensions of an array from `first` on."""
    names: list[str] = []
    for entry in spec[first:]:
        names += [] if entry is None else [entry] if isinstance(entry, str) else list(entry)
    return tuple(sorted(names))


def sum_over_devices(values: list[jax.Array], names: list[tuple[str, ...]]) -> list[Any]:
    """Sums each array over its mesh axes, with one collective for all that share them.

    A tree has hundreds of leaves and each of its norms is a few bytes: one reduction apiece
    would cost hundreds of latencies.

    Args:
        values: arrays of any shapes.
        names: the mesh axes to sum each of them over; an empty tuple leaves it as it is.

    Returns:
        The sums, in the order of `values`.
    """
    sums = list(values)
    for axes in sorted(set(names) - {()}):
        chosen = [i for i, own in enumerate(names) if own == axes]
        together = jax.lax.psum(jnp.concatenate([values[i].ravel() for i in chosen]), axes)
        start = 0
        for i in chosen:
            stop = start + values[i].size
            sums[i] = together[start:stop].reshape(values[i].shape)
            start = stop
    return sums
