"""What a plan takes from a compiled step: numbers alone, small enough to keep in a file."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bert_lamb.planning.chips import Chip
from bert_lamb.planning.collectives import Collective, collectives
from bert_lamb.planning.hlo import read_program
from bert_lamb.planning.origins import read_origins
from bert_lamb.planning.parts import (
    PARTS,
    Unit,
    branch_cycles,
    counted_flops,
    outermost,
    random_bytes,
    units,
)
from bert_lamb.planning.schedule import schedule
from bert_lamb.planning.topology import compile_absent
from bert_lamb.planning.torus import Ring, Span, span_of

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AMOUNT = r"([\d.]+)([KMGT]?)"
# "... memory space hbm. Used 16.74G of 15.48G hbm.", or where the least of a program's memory is
# too much: "... required for HLO temporaries (8.00T) exceeds available HBM (15.48G)."
_TOO_LARGE = (
    re.compile(rf"Used {_AMOUNT} of {_AMOUNT} hbm"),
    re.compile(rf"\({_AMOUNT}\) exceeds available HBM \({_AMOUNT}\)"),
)


class TooLargeError(Exception):
    """A program that does not fit into a device's memory.

    Attributes:
        used: bytes that the compiler needs at least.
        capacity: bytes that it may use.
    """

    def __init__(self, used: int, capacity: int) -> None:
        super().__init__(f"needs {used} bytes of {capacity}")
        self.used, self.capacity = used, capacity


@dataclass(frozen=True)
class Memory:
    """Bytes of one device, as the compiler lays them out.

    Attributes:
        arguments: state and batch.
        outputs: of the step, those that take an argument's place included.
        aliased: of the outputs, those that take an argument's place.
        temporaries: the most that lives at once between the two.
        code: the program itself.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int

    @property
    def peak(self) -> int:
        """What the device has to hold."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


@dataclass(frozen=True)
class Product:
    """A unit with matrix products that runs beside a collective.

    Attributes:
        cycles: of one run.
        flops: of one run.
    """

    cycles: int
    flops: int


@dataclass(frozen=True)
class Exchange:
    """One collective of the step.

    Attributes:
        kind: one of `bert_lamb.planning.collectives.KINDS`.
        axes: of the mesh; None if the groups are not those of whole axes.
        dtypes: of the operands.
        bytes: of the whole array.
        times: runs in a step; None inside a loop of unknown length.
        in_loop: whether it stands in a loop.
        asynchronous: whether something runs beside it.
        span: where its groups lie on the torus.
        beside: places in `StepReading.products` of what runs between its start and its end.
    """

    kind: str
    axes: tuple[str, ...] | None
    dtypes: tuple[str, ...]
    bytes: int
    times: int | None
    in_loop: bool
    asynchronous: bool
    span: Span | None
    beside: tuple[int, ...]


@dataclass(frozen=True)
class StepReading:
    """A compiled step in numbers; all of one device and one step.

    Attributes:
        memory: what it takes.
        cycles: the compiler's estimates by part; of a conditional those of its cheapest branch.
        branch_cycles: what the dearest branches take beyond the cheapest.
        random_bytes: what the generator of random bits gives out.
        flops: of the matrix products, loops counted as often as they run.
        compiler_flops: as the compiler counts, a loop's body once; None if it does not say.
        exchanges: the collectives, in the order in which they start.
        products: that run beside collectives.
        unknown_loops: loops whose length the program does not tell; they count once.
        compile_seconds: what compiling took.
    """

    memory: Memory
    cycles: Mapping[str, int]
    branch_cycles: int
    random_bytes: int
    flops: int
    compiler_flops: float | None
    exchanges: tuple[Exchange, ...]
    products: tuple[Product, ...]
    unknown_loops: int
    compile_seconds: float


def read_step(
    compiled: jax.stages.Compiled,
    mesh: jax.sharding.Mesh,
    chip: Chip,
    compile_seconds: float,
) -> StepReading:
    """Reads a compiled step.

    Args:
        compiled: the step.
        mesh: it was compiled for.
        chip: of the mesh.
        compile_seconds: to be noted.
    """
    text = compiled.as_text() or ""
    program, stacks = read_program(text), read_origins(text)
    steps = schedule(program)
    found = units(program, steps, stacks)
    cycles = dict.fromkeys(PARTS, 0)
    for unit in found:
        cycles[unit.part] += unit.cycles * unit.times * unit.counted
    sent = collectives(text, dict(mesh.shape))
    exchanges, products = _exchanges(sent, found, list(mesh.devices.flat), chip)
    analysis = compiled.cost_analysis() or {}
    return StepReading(
        memory=_memory(compiled),
        cycles=cycles,
        random_bytes=random_bytes(steps),
        branch_cycles=branch_cycles(found),
        flops=counted_flops(found),
        compiler_flops=analysis.get("flops"),
        exchanges=exchanges,
        products=products,
        unknown_loops=sum(
            step.instruction.opcode == "while" and step.trip_count is None for step in steps
        ),
        compile_seconds=compile_seconds,
    )


def to_json(reading: StepReading) -> dict[str, Any]:
    """Returns a reading as plain values."""
    return dataclasses.asdict(reading)


def from_json(values: Mapping[str, Any]) -> StepReading:
    """Returns the reading that `to_json` made plain.

    Raises:
        KeyError, TypeError: if the values are those of something else.
    """
    return StepReading(
        **{
            **values,
            "memory": Memory(**values["memory"]),
            "exchanges": tuple(map(_exchange_from_json, values["exchanges"])),
            "products": tuple(Product(**product) for product in values["products"]),
        }
    )


def too_large(error: Exception) -> TooLargeError | None:
    """Reads what the compiler said; None if it was not that the memory does not suffice."""
    for form in _TOO_LARGE:
        if found := form.search(str(error)):
            used, capacity = (round(float(found[i]) * _UNITS[found[i + 1]]) for i in (1, 3))
            return TooLargeError(used, capacity)
    return None


def usable_bytes(device: jax.Device) -> int:
    """Asks the compiler how much of a device's memory a program may use.

    It says so when a program does not fit; this one, of 8 TiB, does not on any.

    Raises:
        ValueError: if the compiler says something else.
    """
    huge = jax.ShapeDtypeStruct(
        (2**20, 2**20), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(device)
    )
    try:
        compile_absent(jax.jit(lambda x: x * 2).lower(huge))
    except jax.errors.JaxRuntimeError as error:
        if found := too_large(error):
            return found.capacity
        reason = str(error).splitlines()[0]
    else:
        reason = "a program of 8 TiB fits"
    raise ValueError(f"{device.device_kind}: the compiler does not name its memory ({reason})")


def _memory(compiled: jax.stages.Compiled) -> Memory:
    analysis: Any = compiled.memory_analysis()
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
    )


def _exchanges(
    sent: Sequence[Collective], found: Sequence[Unit], devices: list[jax.Device], chip: Chip
) -> tuple[tuple[Exchange, ...], tuple[Product, ...]]:
    by_place = {unit.step.place: unit for unit in found if unit.flops and unit.counted}
    numbers: dict[tuple[int, ...], int] = {}
    spans: dict[tuple[tuple[int, ...], ...], Span | None] = {}
    exchanges = []
    for one in sent:
        if one.group_size == 1:
            continue
        if one.groups not in spans:
            spans[one.groups] = span_of(one.groups, devices, chip)
        beside = []
        if one.asynchronous:
            places = dict.fromkeys(outermost(step).place for step in one.during)
            for place in filter(by_place.__contains__, places):
                beside.append(numbers.setdefault(place, len(numbers)))
        exchange = Exchange(
            one.kind, one.axes, one.dtypes, one.bytes, one.times, bool(one.loops),
            one.asynchronous, spans[one.groups], tuple(beside),
        )  # fmt: skip
        exchanges.append(exchange)
    products = tuple(Product(by_place[place].cycles, by_place[place].flops) for place in numbers)
    return tuple(exchanges), products


def _exchange_from_json(values: Mapping[str, Any]) -> Exchange:
    span = values["span"]
    if span is not None:
        span = Span(**{**span, "rings": tuple(Ring(**ring) for ring in span["rings"])})
    axes = values["axes"]
    return Exchange(
        **{
            **values,
            "axes": None if axes is None else tuple(axes),
            "dtypes": tuple(values["dtypes"]),
            "span": span,
            "beside": tuple(values["beside"]),
        }
    )
