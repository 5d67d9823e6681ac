"""Where the parameters of a run lie: the mesh, and how each of them is cut over it."""

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from bert_lamb.parallel.mesh import ROWS
from bert_lamb.parallel.rules import by_hand, partition


@dataclass(frozen=True)
class Layout:
    """A mesh and the cut of every parameter.

    Attributes:
        mesh: of the run.
        specs: tree of PartitionSpecs, one for each parameter.
        shapes: tree of the parameters' shapes and dtypes.
    """

    mesh: Mesh
    specs: Any
    shapes: Any

    @classmethod
    def of(cls, mesh: Mesh, axes: Any, shapes: Any) -> "Layout":
        """Cuts parameters of `shapes` with the axis names `axes` by the rules.

        Raises:
            ConfigError: if a parameter cannot be cut evenly.
        """
        return cls(mesh, partition(axes, shapes, mesh), shapes)

    def shardings(self, specs: Any = None) -> Any:
        """Returns the NamedShardings of `specs`, default those of the parameters."""
        specs = self.specs if specs is None else specs
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs)

    def local(self) -> Any:
        """Returns what `jax.shard_map` over the rows' axes is told of the parameters."""
        return jax.tree.map(lambda spec: by_hand(spec, ROWS), self.specs)


def placed(shapes: Any, shardings: Any) -> Any:
    """Returns `shapes`, a tree of ShapeDtypeStructs, with a sharding for each."""
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        shapes,
        shardings,
    )
