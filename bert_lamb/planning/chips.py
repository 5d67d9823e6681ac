"""What is known of each TPU generation, every number with its source; None where there is none."""

from dataclasses import dataclass

import jax

from bert_lamb.training.throughput import PEAK_FLOPS


@dataclass(frozen=True)
class Chip:
    """One generation.

    A device is what JAX calls one: a core on v2, v3 and tpu7x, a chip elsewhere.

    Attributes:
        generation: as topologies name it, such as "v5e".
        device_kind: as JAX names it, such as "TPU v5 lite".
        devices_per_chip: JAX devices on a chip.
        clock_hz: of the core, where the compiler's cycles are to be trusted; None elsewhere.
        links: of a chip to its neighbours in the torus, each with two directions.
        link_bandwidth: bytes a second of one link in one direction; None if no source gives it.
        wraps_from: along a side, the chips from which on its ends are joined to a ring. On a torus
            of three sides all of them have to be multiples of it.
        source: of the numbers.
    """

    generation: str
    device_kind: str
    devices_per_chip: int
    clock_hz: float | None
    links: int
    link_bandwidth: float | None
    wraps_from: int
    source: str

    @property
    def peak_flops(self) -> float | None:
        """Dense bf16 FLOP/s of one device, None if unknown."""
        return PEAK_FLOPS.get(self.device_kind)

    @property
    def dimensions(self) -> int:
        """Sides of the torus."""
        return self.links // 2

    def wraps(self, sides: tuple[int, ...]) -> tuple[bool, ...]:
        """Says along which sides of a slice the last chip is joined to the first.

        Args:
            sides: chips along each side of the slice.
        """
        if self.dimensions == 2:
            return tuple(side == self.wraps_from for side in sides)
        whole = all(side % self.wraps_from == 0 for side in sides[: self.dimensions])
        return tuple(whole and side > 2 for side in sides)


_JOUPPI = (
    "Jouppi et al., A domain-specific supercomputer for training deep neural networks, CACM 63 (7),"
    " 2020: clock, and links of {} Gbit/s in each direction"
)
_GOOGLE = "docs.cloud.google.com/tpu/docs/{}: {} GB/s of a chip in both directions over {} links"

# The compiler's cycles are trusted on v2 and v3 alone (docs/scaling.md), so only they have a clock.
CHIPS: tuple[Chip, ...] = (
    Chip("v2", "TPU v2", 2, 700e6, 4, 496e9 / 8, 16, _JOUPPI.format(496)),
    Chip("v3", "TPU v3", 2, 940e6, 4, 656e9 / 8, 32, _JOUPPI.format(656)),
    Chip(
        "v4", "TPU v4", 1, None, 6, 50e9, 4,
        "Jouppi et al., TPU v4, arXiv 2304.01433, table 4: 6 links of 50 GB/s",
    ),
    Chip("v5e", "TPU v5 lite", 1, None, 4, 400e9 / 2 / 4, 16, _GOOGLE.format("v5e", 400, 4)),
    Chip("v5p", "TPU v5", 1, None, 6, 1200e9 / 2 / 6, 4, _GOOGLE.format("v5p", 1200, 6)),
    Chip("v6e", "TPU v6 lite", 1, None, 4, 800e9 / 2 / 4, 16, _GOOGLE.format("v6e", 800, 4)),
    Chip(
        "tpu7x", "TPU7x", 2, None, 6, None, 4,
        "docs.cloud.google.com/tpu/docs/tpu7x; the bandwidth of its links was not found",
    ),
)  # fmt: skip


def chip_of(device: jax.Device) -> Chip:
    """Returns the generation of a device.

    Raises:
        ValueError: if it is none of `CHIPS`.
    """
    for chip in CHIPS:
        if chip.device_kind == device.device_kind:
            return chip
    known = ", ".join(chip.device_kind for chip in CHIPS)
    raise ValueError(f"device {device.device_kind!r}: expected one of {known}")
