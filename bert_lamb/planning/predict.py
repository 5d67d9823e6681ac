"""From what a compiled step holds to seconds: the method of docs/scaling.md.

step = (cycles / clock + random bits / generator's rate + exposed communication) * kappa
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bert_lamb.planning import torus
from bert_lamb.planning.chips import Chip
from bert_lamb.planning.parts import RANDOM
from bert_lamb.planning.reading import Exchange, StepReading

# Measured over predicted times of public runs on v3 and v2 (docs/scaling.md), and their band.
KAPPA, KAPPA_BAND = 1.15, (1.07, 1.25)
# Bytes a second that the generator of random bits writes; the compiler gives it no cycles.
RANDOM_RATE = 200e9
COMPUTATION = "computation"  # the one part where only a utilization is stated


@dataclass(frozen=True)
class Assumptions:
    """What a prediction is told.

    Attributes:
        kappa: factor from the sum of estimates to a real step, where the compiler's cycles count.
        utilization: share of the peak reached while computing, for generations whose cycles are
            not to be trusted; None predicts no time for them.
    """

    kappa: float = KAPPA
    utilization: float | None = None


@dataclass(frozen=True)
class Transfer:
    """Collectives of one sort: same operation, axes, types and place on the torus.

    Attributes:
        kind: one of `bert_lamb.planning.collectives.KINDS`.
        over: axes of the mesh, or where the group lies if it is not made of whole axes.
        dtypes: of the operands.
        span: where a group lies on the torus.
        where: "entry" or "loop", "async" if something is computed beside it.
        count: in the program.
        runs: in a step, of all of them.
        bytes: of the whole arrays, all runs of a step added up.
        seconds: of all runs; None if the bandwidth of the links is not known.
        hidden: of these, while something is computed beside; None if that time is not known.
    """

    kind: str
    over: str
    dtypes: str
    span: str
    where: str
    count: int
    runs: int
    bytes: int
    seconds: float | None
    hidden: float | None


@dataclass(frozen=True)
class Prediction:
    """Where the time of one step goes.

    Attributes:
        basis: what the time of computing rests on; "" if none is predicted.
        computing: seconds by part, before `kappa`.
        branches: seconds more if all conditionals took their dearest branch; None if not known.
        transfers: the collectives by sort.
        kappa: factor on the whole; 1 where a utilization is stated.
        band: the factor's limits.
    """

    basis: str
    computing: Mapping[str, float]
    branches: float | None
    transfers: Mapping[str, Transfer]
    kappa: float
    band: tuple[float, float]

    @property
    def communication(self) -> float | None:
        """Seconds of all collectives, hidden or not."""
        return _total(transfer.seconds for transfer in self.transfers.values())

    @property
    def hidden(self) -> float | None:
        """Seconds of the collectives during which something is computed."""
        return _total(transfer.hidden for transfer in self.transfers.values())

    @property
    def exposed(self) -> float | None:
        """Seconds in which the device waits for collectives."""
        if self.communication is None or self.hidden is None:
            return None
        return self.communication - self.hidden

    @property
    def estimate(self) -> float | None:
        """Seconds of a step before `kappa`."""
        if not self.basis or self.exposed is None:
            return None
        return sum(self.computing.values()) + self.exposed

    @property
    def seconds(self) -> float | None:
        """Seconds of a step."""
        return None if self.estimate is None else self.estimate * self.kappa


def predict(reading: StepReading, chip: Chip, assumptions: Assumptions) -> Prediction:
    """Predicts the time of a step.

    Args:
        reading: of the compiled step.
        chip: it was compiled for.
        assumptions: what else is needed.
    """
    kappa, band = assumptions.kappa, KAPPA_BAND
    durations: list[float] | None = None
    basis, computing, branches = "", {}, None
    if chip.clock_hz is not None:
        basis = "compiler's cycles"
        computing = {part: cycles / chip.clock_hz for part, cycles in reading.cycles.items()}
        computing[RANDOM] += reading.random_bytes / RANDOM_RATE
        branches = reading.branch_cycles / chip.clock_hz
        durations = [product.cycles / chip.clock_hz for product in reading.products]
    elif assumptions.utilization is not None and chip.peak_flops is not None:
        rate = chip.peak_flops * assumptions.utilization
        basis = f"{assumptions.utilization:.0%} of the peak, as stated"
        computing = {COMPUTATION: reading.flops / rate}
        durations = [product.flops / rate for product in reading.products]
        kappa, band = 1.0, (1.0, 1.0)
    transfers = _transfers(reading, chip, durations)
    return Prediction(basis, computing, branches, transfers, kappa, band)


def _transfers(
    reading: StepReading, chip: Chip, durations: list[float] | None
) -> dict[str, Transfer]:
    """Times the collectives; the time of a product hides one collective only."""
    left = list(durations or ())
    found: dict[str, Transfer] = {}
    for exchange in reading.exchanges:
        once = torus.seconds(exchange.kind, exchange.bytes, exchange.span, chip)
        hidden: float | None = 0.0
        if exchange.beside and once:
            hidden = _hide(once, exchange.beside, left) if durations is not None else None
        one = _transfer(exchange, once, hidden)
        key = f"{one.kind} {one.over} {one.dtypes} {one.where} {one.span}"
        found[key] = _sum(found[key], one) if key in found else one
    return found


def _transfer(exchange: Exchange, once: float | None, hidden: float | None) -> Transfer:
    runs = exchange.times if exchange.times is not None else 1
    span = "one chip" if exchange.span is None or not exchange.span.rings else str(exchange.span)
    return Transfer(
        kind=exchange.kind,
        over="+".join(exchange.axes) if exchange.axes else "parts of axes",
        dtypes="+".join(exchange.dtypes),
        span=span,
        where=("loop" if exchange.in_loop else "entry") + " async" * exchange.asynchronous,
        count=1,
        runs=runs,
        bytes=exchange.bytes * runs,
        seconds=None if once is None else once * runs,
        hidden=None if hidden is None else hidden * runs,
    )


def _sum(one: Transfer, other: Transfer) -> Transfer:
    return dataclasses.replace(
        one,
        count=one.count + other.count,
        runs=one.runs + other.runs,
        bytes=one.bytes + other.bytes,
        seconds=_total((one.seconds, other.seconds)),
        hidden=_total((one.hidden, other.hidden)),
    )


def _hide(seconds: float, beside: tuple[int, ...], left: list[float]) -> float:
    """Returns how much of `seconds` the products `beside` hide, and takes it from what is left."""
    rest = seconds
    for number in beside:
        used = min(rest, left[number])
        left[number] -= used
        rest -= used
    return seconds - rest


def _total(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
