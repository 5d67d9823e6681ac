"""Rows of a batch: which of them a host makes, and how they reach its devices."""

from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import Mesh

from bert_lamb.parallel.mesh import over_rows, row_devices


def local_rows(mesh: Mesh, rows: int) -> np.ndarray:
    """Returns the numbers of the rows, of a global batch, that this host's devices hold.

    Hosts that share a tensor axis hold the same rows, and each makes them.

    Args:
        mesh: of the run.
        rows: of the global batch.

    Returns:
        int64 [b], rising.

    Raises:
        ValueError: if the rows cannot be split over the devices.
    """
    _check(rows, row_devices(mesh))
    slices = over_rows(mesh).addressable_devices_indices_map((rows,)).values()
    starts = {(index[0].start or 0, rows if index[0].stop is None else index[0].stop)
              for index in slices if index is not None}  # fmt: skip
    return np.concatenate([np.arange(start, stop) for start, stop in sorted(starts)])


def put_batch(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Places this host's rows of a batch on its devices.

    Args:
        batch: host arrays [b, ...] with the rows `local_rows`, in its order.
        mesh: of the run.

    Returns:
        Global arrays [B, ...], split over the rows.

    Raises:
        ValueError: if b is not this host's share of a batch.
    """
    b = len(next(iter(batch.values())))
    share, ours = row_devices(mesh), len(local_rows(mesh, row_devices(mesh)))
    _check(b, ours)
    rows = b // ours * share
    sharding = over_rows(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, value, (rows, *value.shape[1:]))
        for name, value in batch.items()
    }


def _check(rows: int, devices: int) -> None:
    if rows % devices:
        raise ValueError(
            f"a batch of {rows} rows cannot be split over {devices} devices; "
            "make global_batch a multiple of the number of devices"
        )
