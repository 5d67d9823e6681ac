"""The device mesh of a run and the placement of batches and state on it."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

DATA = "data"


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns a one-axis mesh, `DATA`, over `devices` (default: all of this machine's)."""
    devices = jax.local_devices() if devices is None else devices
    return Mesh(np.asarray(devices), (DATA,), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that holds a whole copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def over_rows(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that splits the leading axis (rows) over the data axis."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def put_batch(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Places a batch of host arrays [B, ...] with its rows split over the data axis.

    Raises:
        ValueError: if B is not a multiple of the number of devices.
    """
    rows = len(next(iter(batch.values())))
    if rows % mesh.shape[DATA]:
        raise ValueError(
            f"a batch of {rows} rows cannot be split over {mesh.shape[DATA]} devices; "
            "make global_batch a multiple of the number of devices"
        )
    return jax.device_put(dict(batch), over_rows(mesh))
