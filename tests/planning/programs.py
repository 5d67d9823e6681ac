"""Small programs whose communication is known by construction, and the means to compile them."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, PartitionSpec

from bert_lamb.planning.topology import compile_absent

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs the TPU compiler: pip install 'bert-lamb[tpu]'",
)


REPLICATED = PartitionSpec()


def make_mesh(devices: Sequence[jax.Device], **sizes: int) -> Mesh:
    grid = np.array(devices).reshape(tuple(sizes.values()))
    return Mesh(grid, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def compile_text(
    function: Callable,
    mesh: Mesh,
    *shapes: Any,
    in_specs: Any = REPLICATED,
    options: Mapping[str, str] | None = None,
) -> str:
    """The text of a function compiled to run on every device of a mesh."""
    mapped = jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=REPLICATED, check_vma=False
    )
    lowered = jax.jit(mapped).lower(*shapes)
    here = mesh.devices.flat[0].platform == "cpu"
    return (lowered.compile() if here else compile_absent(lowered, options)).as_text()


def f32(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


# Every device holds x, float32 [256, 128]: 128 KiB. The mesh has the axes data (4) and fsdp.
X = f32(256, 128)
X_BYTES = 256 * 128 * 4


def every_kind(x: jax.Array) -> tuple[jax.Array, ...]:
    """One collective of each kind."""
    ring = [(i, (i + 1) % 4) for i in range(4)]
    return (
        lax.psum(x, "data"),
        lax.psum_scatter(x + 1, "fsdp", scatter_dimension=0, tiled=True),
        lax.all_gather(x + 2, "fsdp", axis=0, tiled=True),
        lax.ppermute(x + 3, "data", ring),
        lax.all_to_all(x + 4, "fsdp", 0, 0, tiled=True),
    )


def loops(x: jax.Array) -> tuple[jax.Array, ...]:
    """Sums in loops: 5 rounds, 3 x 7 rounds, 6 rounds from 2 to 7, as many as it takes."""

    def total(axis: str, value: jax.Array) -> jax.Array:
        return lax.psum(jnp.sin(value @ value.T @ value), axis)

    scanned, _ = lax.scan(lambda t, _: (t + total("data", t), None), x, None, length=5)
    nested = lax.fori_loop(
        0, 3, lambda _, t: lax.fori_loop(0, 7, lambda _, u: jnp.cos(u + total("fsdp", u)), t), x
    )
    shifted = lax.fori_loop(2, 8, lambda i, t: jnp.cos(t) + total("data", t * i), x)
    unknown = lax.while_loop(lambda t: jnp.sum(t) < 1e6, lambda t: t + total("fsdp", t), x)
    return scanned, nested, shifted, unknown


def branch(x: jax.Array) -> jax.Array:
    """A sum that happens only if the data say so."""
    return lax.cond(jnp.sum(x) > 0, lambda x: lax.psum(x, "fsdp"), lambda x: x * 2, x)


def layered_gradient(weights: list[jax.Array], rows: jax.Array) -> list[jax.Array]:
    """Gradients of a chain of matrix products, summed layer by layer."""

    def loss(weights: list[jax.Array]) -> jax.Array:
        value = rows
        for weight in weights:
            value = jnp.tanh(value @ weight.astype(value.dtype))
        return jnp.sum(jnp.square(value.astype(jnp.float32)))

    return [lax.psum(gradient, "data") for gradient in jax.grad(loss)(weights)]
