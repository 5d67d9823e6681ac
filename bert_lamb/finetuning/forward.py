"""The model's outputs for many rows, on all devices, whole on every host."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from bert_lamb import model
from bert_lamb.finetuning.batches import Rows, ordered_batches
from bert_lamb.model import Objective
from bert_lamb.parallel.batches import local_rows, put_batch
from bert_lamb.parallel.exchange import Exchange
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import ROWS, replicated, row_devices
from bert_lamb.training.state import Params
from bert_lamb.training.task import HostBatch

INPUTS = ("input_ids", "input_mask", "segment_ids")
Forward = Callable[[Params, HostBatch], Any]


def build_forward(objective: Objective, layout: Layout) -> Forward:
    """Returns a function (params, this host's rows of a batch) -> outputs of the whole batch.

    It is compiled once per shape. The outputs are NumPy arrays in the form of the model's own.

    Args:
        objective: whose model it is.
        layout: of its parameters.
    """
    config = objective.config

    @partial(jax.jit, out_shardings=replicated(layout.mesh))
    @partial(
        jax.shard_map,
        mesh=layout.mesh,
        in_specs=(layout.local(), PartitionSpec(ROWS)),
        out_specs=PartitionSpec(ROWS),
        axis_names=set(ROWS),
    )
    def outputs(params: Params, batch: dict[str, jax.Array]) -> Any:
        weights = Exchange(layout, model.weight_dtypes(config, params)).gather(params)
        return model.apply(config, weights, batch, make=objective.make)

    def forward(params: Params, batch: HostBatch) -> Any:
        inputs = {name: batch[name] for name in INPUTS}
        return jax.device_get(outputs(params, put_batch(inputs, layout.mesh)))

    return forward


def all_outputs(
    forward: Forward, params: Params, layout: Layout, make: Rows, size: int, batch: int
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields the outputs for all examples, a batch at a time.

    Args:
        forward: from `build_forward`.
        params: of the model.
        layout: of the parameters.
        make: from numbers of examples to a batch.
        size: number of examples.
        batch: rows at once over all devices, rounded up to a multiple of their number.

    Returns:
        Numbers of the examples int [batch], -1 in rows that fill up the last batch, and outputs.
    """
    devices = row_devices(layout.mesh)
    batch = -(-min(batch, max(size, 1)) // devices) * devices
    rows = local_rows(layout.mesh, batch)
    for numbers, made in ordered_batches(make, size, batch=batch, rows=rows):
        yield numbers, forward(params, made)
