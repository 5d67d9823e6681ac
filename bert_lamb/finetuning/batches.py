"""Batches of numbered examples: shuffled ones to learn from, all in order to predict."""

import itertools
from collections.abc import Callable, Iterator

import grain
import numpy as np

from bert_lamb.training.task import HostBatch

Rows = Callable[[np.ndarray], HostBatch]


def shuffled_batches(
    make: Rows, examples: np.ndarray, *, global_batch: int, seed: int, start: int, rows: np.ndarray
) -> Iterator[HostBatch]:
    """Yields training batches without end; batch t is a function of (examples, seed, t).

    Args:
        make: from numbers of examples to a batch of them.
        examples: numbers to learn from, each once an epoch. int [N], at least one
        global_batch: rows of a batch over all processes.
        seed: of the order, which differs from epoch to epoch.
        start: number of the first batch.
        rows: numbers of the rows of each global batch to make here. int [b]

    Returns:
        Batches of `make` with row int32 [b], the number of each row in the global batch.
    """
    order = grain.MapDataset.range(len(examples)).seed(seed).shuffle().repeat(None)
    for t in itertools.count(start):
        chosen = [order[int(place)] for place in t * global_batch + rows]
        yield make(examples[chosen]) | {"row": rows.astype(np.int32)}


def ordered_batches(
    make: Rows, size: int, *, batch: int, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, HostBatch]]:
    """Yields all examples once, in order.

    Args:
        make: from numbers of examples to a batch of them; -1 stands for an empty row.
        size: number of examples.
        batch: rows of a batch over all processes.
        rows: numbers of the rows of each batch to make here. int [b]

    Returns:
        For each batch the numbers of all its rows int [batch], the last one filled up with -1, and
        what `make` gives for `rows` of it.
    """
    for start in range(0, size, batch):
        numbers = np.arange(start, start + batch)
        numbers[numbers >= size] = -1
        yield numbers, make(numbers[rows])
