"""A table of what the optimizer does with each leaf, to read before a run."""

import math

import jax
import optax

from bert_lamb.optim.masks import PerLeaf, leaf_flags, leaf_paths
from bert_lamb.optim.stacking import stacked_axes


def mask_table(
    params: optax.Params,
    decays: PerLeaf = None,
    adapts: PerLeaf = None,
    stacked: PerLeaf = None,
) -> str:
    """Returns a table of what the optimizer does with each leaf, to print before a run.

    Args:
        params: pytree of parameters; arrays or `jax.ShapeDtypeStruct`.
        decays: `mask` of `lamb`: which leaves decay.
        adapts: `trust_ratio_mask` of `lamb`: which leaves adapt.
        stacked: of `lamb`: number of leading axes that stack published tensors.

    Returns:
        One line per leaf with its path, shape, stacked axes, number of published tensors, and
        whether it decays and adapts; then a line of totals.

    Raises:
        ValueError: a rule does not fit the parameters.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import mask_table, path_mask
        >>> params = {"mlp": {"kernel": jnp.ones([12, 4, 8]), "bias": jnp.zeros([12, 8])}}
        >>> mask = path_mask(params, exclude=(".*/bias",))
        >>> print(mask_table(params, mask, mask, stacked=1))
        path        shape       stacked  tensors  decays  adapts
        mlp/bias    (12, 8)           1       12  no      no
        mlp/kernel  (12, 4, 8)        1       12  yes     yes
        2 leaves, 24 tensors, 480 parameters; 384 decay, 384 adapt
    """
    header = ("path", "shape", "stacked", "tensors", "decays", "adapts")
    leaves = jax.tree.leaves(params)
    columns = (
        leaf_paths(params),
        stacked_axes(stacked, params),
        leaf_flags("decays", decays, params),
        leaf_flags("adapts", adapts, params),
    )
    rows = [header]
    tensors = size = decaying = adapting = 0
    for leaf, path, axes, decay, adapt in zip(leaves, *map(jax.tree.leaves, columns), strict=True):
        count = math.prod(leaf.shape[:axes])
        rows.append(
            (
                path,
                str(tuple(leaf.shape)),
                str(axes),
                str(count),
                "yes" if decay else "no",
                "yes" if adapt else "no",
            )
        )
        tensors += count
        size += math.prod(leaf.shape)
        decaying += math.prod(leaf.shape) if decay else 0
        adapting += math.prod(leaf.shape) if adapt else 0
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = ("<", "<", ">", ">", "<", "<")
    lines = [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.append(
        f"{len(leaves):,} leaves, {tensors:,} tensors, {size:,} parameters; "
        f"{decaying:,} decay, {adapting:,} adapt"
    )
    return "\n".join(lines)
