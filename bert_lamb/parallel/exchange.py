"""What devices exchange in a step: weights before it, gradients after it. For `jax.shard_map`.

Each device computes the gradient of its own rows. Gradients are then summed over all devices,
once: cut parameters by a reduce-scatter over fsdp that leaves each device its part, then a sum of
these parts over the other axes; large whole parameters one by one; and all small ones in a single
sum, since a collective takes its latency however little it carries.

Exchanged layer by layer, inside the backward pass, these sums overlap with it; and the weights
that are cut over fsdp need never be whole in memory, but for one layer (ZeRO-3).

References:
    Rajbhandari et al., "ZeRO", https://arxiv.org/abs/1910.02054, section 5.
    Xu et al., "Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training",
    https://arxiv.org/abs/2004.13336.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_lamb.optim.sharding import sum_over_devices
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import FSDP, ROWS, TENSOR
from bert_lamb.parallel.rules import axis_of, by_hand

LAYERS = "layers"
# Gradients of fewer numbers than this, on one device, are summed together.
SMALL = 2**18
_OTHERS = tuple(axis for axis in ROWS if axis != FSDP)

Clip = Callable[[list[jax.Array]], list[jax.Array]]


class _Sum(NamedTuple):
    """How one gradient is summed over devices.

    Attributes:
        scatter: the axis along which fsdp leaves each device its part; None for no such step.
        over: the mesh axes to sum over after that.
        spec: how the parameter is cut.
    """

    scatter: int | None
    over: tuple[str, ...]
    spec: PartitionSpec


@dataclass(frozen=True)
class Exchange:
    """How one step exchanges weights and gradients.

    Attributes:
        layout: of the parameters. Those under `LAYERS` have layers as their first axis.
        dtypes: tree like the parameters: the dtype in which each is computed with, and sent.
        reduce_dtype: of gradients while they are summed.
        by_layer: put weights together, and clip gradients, layer by layer, in the `hook` of each.
        reduce_by_layer: sum over devices there too, and not once at the end. Only with `by_layer`,
            and with one micro-batch.
        clip: applied to the gradients of one layer, and to all outside of the layers together, as
            one device has them, before they are summed. Only with `by_layer`.
    """

    layout: Layout
    dtypes: Any
    reduce_dtype: Any = jnp.float32
    by_layer: bool = False
    reduce_by_layer: bool = False
    clip: Clip | None = None

    def gather(self, params: Any) -> Any:
        """Returns what to differentiate by: whole weights, but layers as they are if `by_layer`."""

        def prepare(path: Any, x: jax.Array, dtype: Any, spec: PartitionSpec) -> jax.Array:
            dim = axis_of(spec, FSDP)
            if not self._in_hook(path):
                return _own(_whole(x, dtype, spec), dim)
            return x if self.reduce_by_layer else _own(x, dim)

        return jax.tree_util.tree_map_with_path(prepare, params, self.dtypes, self.layout.specs)

    def hook(self) -> Callable[[Any], Any] | None:
        """Returns what a layer does to its own parameters first; None for nothing.

        Forwards it puts them together, in their dtype; backwards it clips their gradients and sums
        them over devices.
        """
        if not self.by_layer:
            return None
        dtypes = jax.tree.leaves(self.dtypes[LAYERS])
        # Within a layer the axis of layers is gone.
        specs = [PartitionSpec(*spec[1:]) for spec in jax.tree.leaves(self.layout.specs[LAYERS])]
        plans = [_plan(spec) for spec in specs]
        if not self.reduce_by_layer:
            plans = [plan._replace(over=()) for plan in plans]

        @jax.custom_vjp
        def exchange(leaves: list[jax.Array]) -> list[jax.Array]:
            whole = [_whole(*each) for each in zip(leaves, dtypes, specs, strict=True)]
            if not self.reduce_by_layer:
                return whole
            return [_own(x, axis_of(spec, FSDP)) for x, spec in zip(whole, specs, strict=True)]

        def backward(_: None, grads: list[jax.Array]) -> tuple[list[jax.Array]]:
            if self.clip is not None:
                grads = self.clip([g.astype(jnp.float32) for g in grads])
            return (_sum(grads, plans, self._send),)

        exchange.defvjp(lambda leaves: (exchange(leaves), None), backward)

        def hook(layer: Any) -> Any:
            leaves, structure = jax.tree.flatten(layer)
            return jax.tree.unflatten(structure, exchange(leaves))

        return hook

    def clip_outside(self, grads: Any) -> Any:
        """Clips the gradients outside of the layers, those of one micro-batch on one device."""
        if self.clip is None:
            return grads
        outside = {name: tree for name, tree in grads.items() if name != LAYERS}
        leaves, structure = jax.tree.flatten(outside)
        clipped = self.clip([g.astype(jnp.float32) for g in leaves])
        return {**jax.tree.unflatten(structure, clipped), LAYERS: grads[LAYERS]}

    def reduce(self, grads: Any) -> Any:
        """Sums gradients over all devices, as far as the layers have not done so themselves.

        Returns:
            A tree of what this device keeps of each sum, float32.
        """

        def plan(path: Any, spec: PartitionSpec) -> _Sum:
            found = _plan(spec)
            if self._in_hook(path):
                found = found._replace(scatter=None)
                found = found._replace(over=()) if self.reduce_by_layer else found
            return found

        plans = jax.tree_util.tree_map_with_path(plan, self.layout.specs)
        leaves, structure = jax.tree.flatten(grads)
        plans = jax.tree.leaves(plans, is_leaf=lambda x: isinstance(x, _Sum))
        return jax.tree.unflatten(structure, _sum(leaves, plans, self._send))

    def _send(self, x: jax.Array) -> jax.Array:
        """Returns a gradient as it is sent."""
        if x.dtype != self.reduce_dtype:
            # Behind the barrier a TPU's compiler cannot see where the numbers come from. Otherwise
            # it sums in the narrow dtype of the backward pass what was to be summed in float32.
            x = jax.lax.optimization_barrier(x.astype(self.reduce_dtype))
        # On CPUs a 16-bit sum inside a partly manual program aborts the compiler (jaxlib 0.10.2);
        # there the rounded numbers are summed in 32 bits, as the CPU does with all narrow sums.
        on_cpu = self.layout.mesh.devices.flat[0].platform == "cpu"
        return x.astype(jnp.float32) if on_cpu else x

    def _in_hook(self, path: Any) -> bool:
        return self.by_layer and path[0] == jax.tree_util.DictKey(LAYERS)


def _plan(spec: PartitionSpec) -> _Sum:
    cut = axis_of(spec, FSDP)
    return _Sum(cut, ROWS if cut is None else _OTHERS, spec)


def _whole(x: jax.Array, dtype: Any, spec: PartitionSpec) -> jax.Array:
    """Returns all that fsdp has cut of a parameter, if it has."""
    x, dim = x.astype(dtype), axis_of(spec, FSDP)
    if dim is None:
        return x
    return _on_parts(lambda y: jax.lax.all_gather(y, FSDP, axis=dim, tiled=True), x, spec)


def _scattered(x: jax.Array, plan: _Sum) -> jax.Array:
    dim = plan.scatter
    return _on_parts(
        lambda y: jax.lax.psum_scatter(y, FSDP, scatter_dimension=dim, tiled=True), x, plan.spec
    )


def _on_parts(function: Callable, x: jax.Array, spec: PartitionSpec) -> jax.Array:
    """Applies a collective over fsdp to what each device of the tensor axis has of x.

    Left to the compiler, the parts would be put together over the tensor axis first.
    """
    if axis_of(spec, TENSOR) is None:
        return function(x)
    parts = by_hand(spec, (TENSOR,))
    return jax.shard_map(function, in_specs=parts, out_specs=parts, axis_names={TENSOR})(x)


def _own(x: jax.Array, dim: int | None) -> jax.Array:
    """Makes x this device's own: what all devices share would have its gradient summed over them.

    A parameter that fsdp has cut is already different along that axis.
    """
    return jax.lax.pcast(x, ROWS if dim is None else _OTHERS, to="varying")


def _sum(
    grads: Sequence[jax.Array], plans: Sequence[_Sum], send: Callable[[jax.Array], jax.Array]
) -> list[jax.Array]:
    """Sums each array over devices as its plan says, sent as `send` gives it; returns float32."""
    sums = [
        g if plan.scatter is None else _scattered(send(g), plan)
        for g, plan in zip(grads, plans, strict=True)
    ]
    together = []
    for i, (g, plan) in enumerate(zip(sums, plans, strict=True)):
        # Joining what is cut over the tensor axis would put it together first.
        if plan.over and g.size < SMALL and axis_of(plan.spec, TENSOR) is None:
            together.append(i)
        elif plan.over:
            sums[i] = jax.lax.psum(send(g), plan.over)
    joined = sum_over_devices([send(sums[i]) for i in together], [plans[i].over for i in together])
    for i, total in zip(together, joined, strict=True):
        sums[i] = total
    return [g.astype(jnp.float32) for g in sums]
