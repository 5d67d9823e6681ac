"""The device mesh of a run: four named axes, laid over slices, hosts and chips."""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_lamb.config import ConfigError, ParallelConfig

AXES = ("replica", "data", "fsdp", "tensor")
# The axes over which the rows of a batch are split. The step handles these by hand, inside
# `jax.shard_map`; the compiler handles the tensor axis.
ROWS = ("replica", "data", "fsdp")
FSDP, TENSOR = "fsdp", "tensor"
RING = 0  # config.parallel.fsdp: a ring of the torus


def make_mesh(config: ParallelConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Lays the axes of `config` over devices, the slowest links under the first axis.

    Devices of one host are neighbours, so that the last axes, which talk most, stay inside a host
    where they fit; on TPUs the axes follow the links of the torus.

    Args:
        config: sizes of the axes; -1 is filled in.
        devices: default: all devices of all hosts.

    Returns:
        A mesh with the axes `AXES`, also those of size 1.

    Raises:
        ConfigError: if the sizes do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    slices = _by_slice(devices)
    shape = axis_sizes(config, len(devices), len(slices), _cores(devices))
    within = (shape[0] // len(slices), *shape[1:])
    grid = np.concatenate([_lay(within, part) for part in slices])
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def row_devices(mesh: Mesh) -> int:
    """Returns into how many parts the rows of a batch are split."""
    return math.prod(mesh.shape[axis] for axis in ROWS)


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that holds a whole copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def over_rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that splits the leading axis, rows of a batch."""
    return NamedSharding(mesh, PartitionSpec(ROWS))


def describe_mesh(mesh: Mesh) -> str:
    """Names the axes with more than one device, such as "data 4 x tensor 2"."""
    sizes = [f"{axis} {size}" for axis, size in mesh.shape.items() if size > 1]
    return " x ".join(sizes) or "one device"


def _by_slice(devices: Sequence[jax.Device]) -> list[list[jax.Device]]:
    """Groups devices by the slice they are part of; platforms without slices have one."""
    groups: dict[int, list[jax.Device]] = {}
    for device in sorted(devices, key=lambda d: (d.process_index, d.id)):
        groups.setdefault(getattr(device, "slice_index", None) or 0, []).append(device)
    return [groups[index] for index in sorted(groups)]


def axis_sizes(
    config: ParallelConfig, devices: int, slices: int, cores: int = 1
) -> tuple[int, ...]:
    """Returns the sizes of the axes `AXES`, with -1 and 0 filled in.

    Args:
        config: sizes of the axes.
        devices: of all slices.
        slices: number of slices.
        cores: devices of a chip, 2 on TPU v2 and v3.

    Raises:
        ConfigError: if the sizes do not multiply to the number of devices, or the replicas are not
            a multiple of the slices.
    """
    sizes = {axis: getattr(config, axis) for axis in AXES}
    if sizes["replica"] == -1:
        sizes["replica"] = slices
    if sizes["fsdp"] == RING:
        sizes["fsdp"] = _ring(devices // slices // max(1, sizes["tensor"]), cores)
    given = math.prod(size for size in sizes.values() if size != -1)
    for axis, size in sizes.items():
        if size == -1:
            if devices % given:
                raise ConfigError(
                    f"config.parallel: the axes beside {axis} take {_product(sizes)} = {given} "
                    f"devices: expected a divisor of the {devices} devices here"
                )
            sizes[axis] = devices // given
    if math.prod(sizes.values()) != devices:
        raise ConfigError(
            f"config.parallel: {_product(sizes)} = {math.prod(sizes.values())} devices: expected "
            f"the {devices} devices here; set one axis to -1 to give it the rest"
        )
    if sizes["replica"] % slices:
        raise ConfigError(
            f"config.parallel.replica = {sizes['replica']}: expected a multiple of the {slices} "
            "slices"
        )
    return tuple(sizes.values())


def _ring(devices: int, cores: int) -> int:
    """Returns the devices along the longer side of a slice as square as can be, a power of two.

    On v3 of 32 x 32 chips of two cores these are the 64 cores of a ring of 32 chips.
    """
    power = math.gcd(devices, 2 ** devices.bit_length())  # the power of two in it
    chips = max(1, devices // cores)
    return min(power, cores * 2 ** math.ceil(math.log2(chips) / 2))


def _product(sizes: dict[str, int]) -> str:
    return " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size != -1)


def _cores(devices: Sequence[jax.Device]) -> int:
    """Returns the devices of one chip: the cores of TPU v2, v3 and 7x, elsewhere 1."""
    return 1 + max(getattr(device, "core_on_chip", None) or 0 for device in devices)


def _lay(shape: tuple[int, ...], devices: list[jax.Device]) -> np.ndarray:
    if devices[0].platform != "tpu":
        return np.array(devices).reshape(shape)
    if _cores(devices) > 1:
        # Two cores to a chip (v2, v3): the last axes take cores, then whole rings of the torus. The
        # library's order is that of hosts, 2 x 2 chips each, whose rows are no rings.
        devices = sorted(devices, key=lambda d: (*d.coords, d.core_on_chip))
        return np.array(devices).reshape(shape)
    # Follows the torus; an axis may also take a part of one of its dimensions.
    return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
