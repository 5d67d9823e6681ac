"""How long a collective takes on the links of a torus: a model with stated numbers.

Devices that communicate lie on the torus of a slice as a box of chips. Along each side of the box
an array moves in a ring, over two links of a chip at once, or along a line where the ends are not
joined, over one. The sides of a box work at the same time, each on its share of the array. Groups
that lie between each other, or on the cores of the same chips, share the links.

Nothing of this is measured here; docs/scaling.md gives the sources of the numbers and how much the
result depends on them.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax

from bert_lamb.planning.chips import Chip

EFFICIENCY = 0.7  # share of a link's bandwidth that a large array gets
LATENCY = 0.15e-3  # seconds that each large collective takes beside moving its bytes
LARGE = 2**20  # bytes from which a collective is large

# How often the bytes of the whole array pass through a chip, ring by ring.
_PASSES = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0, "collective-broadcast": 1.0}
_EXCHANGES = ("all-to-all", "ragged-all-to-all")


@dataclass(frozen=True)
class Ring:
    """One side of the box of chips that a group of devices covers.

    Attributes:
        chips: along this side, at least 2.
        joined: whether the last is a neighbour of the first.
        stride: links from one to the next; as many groups share the links between them.
    """

    chips: int
    joined: bool
    stride: int = 1

    @property
    def links(self) -> float:
        """Links of a chip on which an array moves at once, those shared counted as parts."""
        return (2 if self.joined else 1) / self.stride


@dataclass(frozen=True)
class Span:
    """Where the devices of a group lie.

    Attributes:
        chips: of the group.
        cores: of each chip that belong to the group.
        sharing: groups that use the links of one chip.
        rings: the sides of the box; a group whose chips are no box is taken as one line.
        box: whether they are one.
    """

    chips: int
    cores: int
    sharing: int
    rings: tuple[Ring, ...]
    box: bool = True

    @property
    def links(self) -> float:
        """Links of a chip that the group has to itself."""
        return sum(ring.links for ring in self.rings) / self.sharing

    def __str__(self) -> str:
        """Writes, for example, "32 ring x 4 line/8, 2 cores"."""
        sides = " x ".join(
            f"{ring.chips} {'ring' if ring.joined else 'line'}"
            + (f"/{ring.stride}" if ring.stride > 1 else "")
            for ring in self.rings
        )
        cores = f"{self.cores} cores" if self.cores > 1 else ""
        return ", ".join(filter(None, (sides if self.box else f"{sides} (no box)", cores)))


def span_of(
    groups: Sequence[Sequence[int]], devices: Sequence[jax.Device], chip: Chip
) -> Span | None:
    """Finds where the groups of a collective lie; the slowest of them if they differ.

    Args:
        groups: places in `devices` that communicate.
        devices: of the program, in the order of its mesh.
        chip: their generation.

    Returns:
        None if every group is a single device.
    """
    sides = tuple(1 + max(d.coords[i] for d in devices) for i in range(3))
    spans = {
        _span([tuple(devices[place].coords) for place in group], sides, chip)
        for group in groups
        if len(group) > 1
    }
    return min(spans, key=lambda span: (span.links or math.inf, -span.chips)) if spans else None


def _span(places: Sequence[tuple[int, ...]], sides: tuple[int, ...], chip: Chip) -> Span:
    chips = sorted(set(places))
    cores = max(1, len(places) // len(chips))
    sharing = max(1, chip.devices_per_chip // cores)
    values = [sorted({place[axis] for place in chips}) for axis in range(len(sides))]
    if math.prod(map(len, values)) != len(chips) or not all(map(_even, values)):
        return Span(len(chips), cores, sharing, (Ring(len(chips), joined=False),), box=False)
    rings = []
    for axis, along in enumerate(values):
        if len(along) > 1:
            stride = along[1] - along[0]
            whole = stride * len(along) == sides[axis] and chip.wraps(sides)[axis]
            rings.append(Ring(len(along), whole and len(along) > 2, stride))
    return Span(len(chips), cores, sharing, tuple(rings))


def _even(values: Sequence[int]) -> bool:
    return len({after - before for before, after in itertools.pairwise(values)}) <= 1


def seconds(kind: str, size: int, span: Span | None, chip: Chip) -> float | None:
    """Predicts how long one collective takes.

    With n chips in the group, an all-gather or reduce-scatter of an array of B bytes sends
    B (n - 1) / n through the links of each chip, an all-reduce twice that.

    Args:
        kind: one of `bert_lamb.planning.collectives.KINDS`.
        size: bytes of the whole array: `Collective.bytes`.
        span: where the group lies; None for a single device.
        chip: the generation.

    Returns:
        Seconds; what the cores of one chip exchange counts nothing. None if the generation's
        bandwidth is not known.
    """
    if span is None or not span.rings:
        return 0.0
    if chip.link_bandwidth is None:
        return None
    link = chip.link_bandwidth * EFFICIENCY
    latency = LATENCY if size >= LARGE else 0.0
    if kind in _EXCHANGES:
        moved = size * max(map(_exchange_share, span.rings))
        return moved * span.cores * span.sharing / link + latency
    if kind == "collective-permute":
        hops = max(ring.stride for ring in span.rings)
        return size * hops * span.cores * span.sharing / link + latency
    moved = _PASSES[kind] * size * (span.chips - 1) / span.chips
    return moved / (span.links * link) + latency


def _exchange_share(ring: Ring) -> float:
    """Returns the part of what a chip sends to all others that the busiest link carries."""
    return ring.chips / (8 if ring.joined else 4) * ring.stride


def sources(chip: Chip) -> Mapping[str, object]:
    """Returns the numbers of the model, for a report."""
    return {
        "link_bytes_per_second": chip.link_bandwidth,
        "link_source": chip.source,
        "link_efficiency": EFFICIENCY,
        "latency_seconds": LATENCY,
        "latency_from_bytes": LARGE,
    }
