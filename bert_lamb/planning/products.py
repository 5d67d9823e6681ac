"""Floating-point operations of the matrix products in a compiled program."""

import math
import re
from collections.abc import Sequence

import numpy as np

from bert_lamb.planning.hlo import Array, Instruction
from bert_lamb.planning.schedule import Step

_CONTRACTED = re.compile(r"\blhs_contracting_dims=\{([\d,]*)\}")
_LABELS = re.compile(r"\bdim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"\bwindow=\{([^}]*)\}")
_COUNTED = re.compile(r"\b(feature_group_count|batch_group_count)=(\d+)")


def product_flops(step: Step) -> int:
    """Counts a product's operations in one run: 2 m n k for [m, k] times [k, n].

    A TPU's compiler writes products as convolutions, batches of them as convolutions whose window
    meets the numbers of its own batch only: pairs of a window's place and a place outside of the
    array, or between its numbers, do not count.

    Args:
        step: a dot or convolution; of a library's product, whose shapes do not say what it
            contracts, the two operands are taken as matrices with a shared last or first axis.

    Raises:
        ValueError: if the text does not hold the shapes of its operands.
    """
    instruction = step.instruction
    operands = [step.computation.by_name.get(name) for name in instruction.operands[:2]]
    if len(operands) < 2 or any(one is None or not one.arrays for one in operands):
        raise ValueError(f"{instruction.name}: the shapes of its operands are not in the program")
    left, right = (one.arrays[0] for one in operands if one is not None)
    if instruction.opcode == "convolution":
        return _convolution(instruction, left, right)
    result = math.prod(instruction.arrays[0].dims)
    contracted = _CONTRACTED.search(instruction.attributes)
    if contracted:
        return 2 * result * math.prod(left.dims[int(axis)] for axis in _listed(contracted[1]))
    # [..., m, k] x [..., k, n] has m n k of one batch and the square root gives them: lhs * rhs *
    # result = (b m k) (b k n) (b m n).
    batch = math.prod(instruction.arrays[0].dims[:-2])
    cube = math.prod(left.dims) * math.prod(right.dims) * result // max(1, batch) ** 3
    return 2 * batch * math.isqrt(cube)


def _convolution(instruction: Instruction, left: Array, right: Array) -> int:
    labels = _LABELS.search(instruction.attributes)
    if not labels:
        raise ValueError(f"{instruction.name}: a convolution without dim_labels")
    inputs = dict(zip(labels[1], left.dims, strict=True))
    kernel = dict(zip(labels[2], right.dims, strict=True))
    result = dict(zip(labels[3], instruction.arrays[0].dims, strict=True))
    groups = {name: int(count) for name, count in _COUNTED.findall(instruction.attributes)}
    window = _WINDOW.search(instruction.attributes)
    spatial = sorted(label for label in kernel if label.isdigit())
    pairs = math.prod(
        _pairs(inputs[label], kernel[label], result[label], settings)
        for label, settings in zip(spatial, _settings(window[1] if window else "", len(spatial)),
                                   strict=True)
    )  # fmt: skip
    batch = inputs["b"] // groups.get("batch_group_count", 1)
    return 2 * batch * result["f"] * kernel["i"] * pairs


def _settings(text: str, dimensions: int) -> list[dict[str, tuple[int, ...]]]:
    """Reads `size=3x3 pad=1_1x0_0 ...` into the settings of each dimension."""
    found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(dimensions)]
    for part in text.split():
        name, _, values = part.partition("=")
        for one, value in zip(found, values.split("x"), strict=False):
            one[name] = tuple(map(int, value.split("_")))
    return found


def _pairs(size: int, window: int, result: int, settings: dict[str, tuple[int, ...]]) -> int:
    """Counts the pairs (place of the result, place in the window) that meet a number."""
    stride, dilated = settings.get("stride", (1,))[0], settings.get("lhs_dilate", (1,))[0]
    spread, low = settings.get("rhs_dilate", (1,))[0], settings.get("pad", (0, 0))[0]
    extent = (size - 1) * dilated + 1
    at = np.add.outer(np.arange(result) * stride, np.arange(window) * spread - low)
    return int(np.count_nonzero((at >= 0) & (at < extent) & (at % dilated == 0)))


def _listed(text: str) -> Sequence[int]:
    return [int(number) for number in text.split(",") if number]
