"""Which mesh axis cuts which axis of a parameter."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

from bert_lamb.config import ConfigError

# For each named axis, the mesh axes that may cut it. An axis is cut by the first of them that has
# more than one device and cuts no other axis of the same parameter.
#
# The tensor axis cuts heads, feed-forward width and vocabulary, so that the first of two matrices
# gives out what the second takes in, and one sum over the devices follows the second (Shoeybi et
# al., "Megatron-LM", arXiv 1909.08053, section 3). The fsdp axis cuts the first axis that it can:
# cutting the last one would leave the tiles of a TPU's memory, 128 numbers wide, mostly empty.
RULES: Mapping[str, Sequence[str]] = {
    "layers": (),
    "embed": ("fsdp",),
    "heads": ("tensor", "fsdp"),
    "mlp": ("tensor", "fsdp"),
    "vocab": ("tensor", "fsdp"),
    "positions": ("fsdp",),
    "width": ("fsdp",),
}

# What the configuration calls the size of each.
_KEYS = {
    "embed": "hidden_size",
    "width": "hidden_size",
    "heads": "num_heads",
    "mlp": "intermediate_size",
    "vocab": "vocab_size, padded to a multiple of vocab_multiple",
    "positions": "max_positions",
}


def partition(axes: Any, shapes: Any, mesh: Mesh, rules: Mapping = RULES) -> Any:
    """Says for every parameter how it is cut.

    Args:
        axes: tree of tuples of axis names, as `bert_lamb.model.parameter_axes` gives it.
        shapes: tree of the parameters or their shapes.
        mesh: of the run.
        rules: from a name to the mesh axes that may cut it.

    Returns:
        A tree of PartitionSpecs, one entry for each axis up to the last that is cut.

    Raises:
        ConfigError: if an axis cannot be cut into so many equal parts; names the parameter and
            both numbers.
    """

    def cut(path: Any, shape: Any, names: Sequence[str | None]) -> PartitionSpec:
        entries: list[str | None] = []
        # A vector weighs too little to be put together from its parts in every step.
        vector = len([name for name in names if name not in ("layers", None)]) < 2
        for name, size in zip(names, shape.shape, strict=True):
            allowed = [axis for axis in rules[name] if axis not in entries] if name else []
            allowed = [axis for axis in allowed if mesh.shape[axis] > 1]
            allowed = [axis for axis in allowed if not (vector and axis == "fsdp")]
            entries.append(allowed[0] if allowed else None)
            if allowed and size % mesh.shape[allowed[0]]:
                where = jax.tree_util.keystr(path, simple=True, separator="/")
                raise ConfigError(
                    f"config.parallel.{allowed[0]} = {mesh.shape[allowed[0]]}: expected a divisor "
                    f"of {size}, the axis {name!r} of {where} (config.model.{_KEYS[str(name)]})"
                )
        while entries and entries[-1] is None:
            entries.pop()
        return PartitionSpec(*entries)

    return jax.tree_util.tree_map_with_path(cut, shapes, axes)


def axis_of(spec: PartitionSpec, mesh_axis: str) -> int | None:
    """Returns the number of the axis that `mesh_axis` cuts, None if it cuts none."""
    return next((i for i, entry in enumerate(spec) if entry == mesh_axis), None)


def by_hand(spec: PartitionSpec, hand: Sequence[str]) -> PartitionSpec:
    """Returns the part of `spec` that `jax.shard_map` over the axes `hand` is told."""
    return PartitionSpec(*(entry if entry in hand else None for entry in spec))
