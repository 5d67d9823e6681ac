"""The figures of one phase on one topology: compiled, read, predicted, and made to fit."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.errors import JaxRuntimeError
from jax.sharding import Mesh

from bert_lamb.config import PretrainConfig
from bert_lamb.parallel.mesh import row_devices
from bert_lamb.planning import cache
from bert_lamb.planning.chips import Chip
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.predict import Assumptions, Prediction, predict
from bert_lamb.planning.reading import (
    Memory,
    StepReading,
    TooLargeError,
    read_step,
    too_large,
)
from bert_lamb.planning.topology import compile_absent
from bert_lamb.training.preflight import micro_batches

# Layers of the two programs from which `quick` draws its line.
SAMPLED_LAYERS = (2, 4)


@dataclass(frozen=True)
class Workshop:
    """What compiling takes.

    Attributes:
        mesh: of the run.
        chip: of the mesh.
        capacity: bytes of a device that a program may use.
        assumptions: of the prediction.
        folder: for readings; None keeps none.
        quick: whether to compile few layers only and extrapolate.
        say: takes a line about what is being done.
    """

    mesh: Mesh
    chip: Chip
    capacity: int
    assumptions: Assumptions
    folder: Path | None
    quick: bool
    say: Callable[[str], None]


@dataclass(frozen=True)
class Figures:
    """A compiled step in numbers, of one device and one step.

    Attributes:
        memory: what it takes.
        flops: of the matrix products, recomputation and padding included.
        compiler_flops: what the compiler counts; None if it does not say.
        unknown_loops: loops that count once since their length is not known.
        compile_seconds: what compiling took when it was done.
        prediction: where the time goes.
    """

    memory: Memory
    flops: int
    compiler_flops: float | None
    unknown_loops: int
    compile_seconds: float
    prediction: Prediction


@dataclass(frozen=True)
class Fit:
    """Whether a phase's step fits into a device, and what it costs.

    Attributes:
        rows: of the global batch on one device.
        micro_batches: parts in which it takes them.
        needed: bytes, what the compiler says the step needs at least if it does not fit.
        capacity: bytes of a device that a program may use.
        figures: None if it does not fit.
        largest_rows: most rows of one pass that fit, where the step does not; None if none do.
    """

    rows: int
    micro_batches: int
    needed: int
    capacity: int
    figures: Figures | None
    largest_rows: int | None

    @property
    def fits(self) -> bool:
        """Whether the device holds the step."""
        return self.needed <= self.capacity and self.figures is not None

    @property
    def pass_rows(self) -> int:
        """Rows of one forward and backward pass."""
        return self.rows // self.micro_batches


def fit_phase(config: PretrainConfig, index: int, workshop: Workshop) -> Fit:
    """Compiles a phase; if it does not fit, searches for the most rows of a pass that do.

    Args:
        config: of the run, with the vocabulary's size filled in.
        index: of the phase.
        workshop: where and how.

    Raises:
        ConfigError: if the configuration does not fit the mesh.
    """
    devices = row_devices(workshop.mesh)
    phase = config.phases[index]
    rows, parts = phase.global_batch // devices, micro_batches(phase, devices)
    found = _figures(config, index, workshop)
    needed = found.used if isinstance(found, TooLargeError) else found.memory.peak
    fit = Fit(rows, parts, needed, workshop.capacity, None, None)
    if isinstance(found, Figures):
        fit = dataclasses.replace(fit, figures=found)
    if fit.fits:
        return fit
    return dataclasses.replace(fit, largest_rows=_largest(config, index, workshop, fit))


def _largest(config: PretrainConfig, index: int, workshop: Workshop, fit: Fit) -> int | None:
    """Finds the most rows of a pass that fit, by bisecting those that divide the device's."""
    fewer = [n for n in range(1, fit.pass_rows) if fit.rows % n == 0]
    low, high = 0, len(fewer)  # all below `low` fit, none from `high` on
    while low < high:
        middle = (low + high) // 2
        tried = _with_rows(config, index, fewer[middle])
        found = _figures(tried, index, workshop)
        if isinstance(found, Figures) and found.memory.peak <= workshop.capacity:
            low = middle + 1
        else:
            high = middle
    return fewer[low - 1] if low else None


def _with_rows(config: PretrainConfig, index: int, rows: int) -> PretrainConfig:
    phases = list(config.phases)
    phases[index] = dataclasses.replace(phases[index], max_rows_per_device=rows)
    return dataclasses.replace(config, phases=tuple(phases))


def _figures(config: PretrainConfig, index: int, workshop: Workshop) -> Figures | TooLargeError:
    few, more = SAMPLED_LAYERS
    layers = config.model.num_layers
    if not workshop.quick or layers <= more:
        return _compiled(config, index, workshop)
    at_few = _compiled(_with_layers(config, few), index, workshop)
    at_more = _compiled(_with_layers(config, more), index, workshop)
    for one in (at_few, at_more):
        if isinstance(one, TooLargeError):
            return one
    return _line(at_few, at_more, (layers - few) / (more - few))


def _with_layers(config: PretrainConfig, layers: int) -> PretrainConfig:
    model = dataclasses.replace(config.model, num_layers=layers)
    return dataclasses.replace(config, model=model)


def _line(at_0: Any, at_1: Any, at: float) -> Any:
    """Continues numbers on the line through their values at 0 and 1; all else is that at 1."""
    if dataclasses.is_dataclass(at_1) and not isinstance(at_1, type):
        names = [field.name for field in dataclasses.fields(at_1)]
        parts = {n: _line(getattr(at_0, n), getattr(at_1, n), at) for n in names}
        return type(at_1)(**parts)
    if isinstance(at_1, Mapping):
        return {
            key: _line(at_0[key], value, at) if key in at_0 else value
            for key, value in at_1.items()
        }
    if isinstance(at_1, bool) or not isinstance(at_1, int | float) or at_0 is None:
        return at_1
    value = at_0 + (at_1 - at_0) * at
    return round(value) if isinstance(at_1, int) else value


def _compiled(config: PretrainConfig, index: int, workshop: Workshop) -> Figures | TooLargeError:
    reading = _reading(config, index, workshop)
    if isinstance(reading, TooLargeError):
        return reading
    return Figures(
        memory=reading.memory,
        flops=reading.flops,
        compiler_flops=reading.compiler_flops,
        unknown_loops=reading.unknown_loops,
        compile_seconds=reading.compile_seconds,
        prediction=predict(reading, workshop.chip, workshop.assumptions),
    )


def _reading(config: PretrainConfig, index: int, workshop: Workshop) -> StepReading | TooLargeError:
    """Reads the compiled step of a phase, from its file if there is one."""
    lowered, options = lower_phase(config, index, workshop.mesh)
    devices = list(workshop.mesh.devices.flat)
    key = cache.key_of(lowered, options, devices)
    parts = micro_batches(config.phases[index], row_devices(workshop.mesh))
    rows = config.phases[index].global_batch // row_devices(workshop.mesh)
    title = f"phase {index + 1}, {config.model.num_layers} layers, {parts} x {rows // parts} rows"
    if workshop.folder is not None and (kept := cache.load(workshop.folder, key)) is not None:
        workshop.say(f"{title}: read from {workshop.folder / key}.json")
        return kept
    workshop.say(f"{title}: compiling for {len(devices)} x {workshop.chip.device_kind}")
    began = time.perf_counter()
    found: StepReading | TooLargeError
    try:
        compiled = compile_absent(lowered, options)
    except JaxRuntimeError as error:
        refused = too_large(error)
        if refused is None:
            raise
        found = refused
    else:
        seconds = time.perf_counter() - began
        found = read_step(compiled, workshop.mesh, workshop.chip, seconds)
    workshop.say(f"{title}: compiled in {time.perf_counter() - began:.0f} s")
    if workshop.folder is not None:
        cache.save(workshop.folder, key, found)
    return found
