"""TPU slices by their names: chips, hosts, topology, and what Cloud TPU and GKE call them.

Sources: Google's tables of TPU types and topologies, of runtime versions and of GKE's machine
types; the peaks are those of the data sheets (dense bf16).
"""

import difflib
import math
import re
from dataclasses import dataclass

from running import LaunchError


@dataclass(frozen=True)
class Generation:
    """What all slices of one TPU generation share.

    Attributes:
        prefix: of accelerator types, as in PREFIX-N.
        counts: how much of N one chip is: 2 where N counts TensorCores, 1 where it counts chips.
        devices_per_chip: JAX devices that a chip shows up as.
        gke: value of the node label cloud.google.com/gke-tpu-accelerator.
        machine: GKE's machine type of a host with four chips.
        runtime: software version of Cloud TPU VMs; None where there are no such VMs.
        peak: dense bf16 FLOP/s of a chip.
        multislice: whether several slices can work on one job.
        topologies: arrangement of the chips of each slice that has a name.
    """

    prefix: str
    counts: int
    devices_per_chip: int
    gke: str
    machine: str
    runtime: str | None
    peak: float
    multislice: bool
    topologies: tuple[str, ...]


@dataclass(frozen=True)
class Slice:
    """One slice.

    Attributes:
        name: the accelerator type that Cloud TPU knows, such as v5litepod-256.
        chips: chips in all.
        chips_per_host: chips of one host, which is one JAX process.
        topology: arrangement of the chips, such as 4x4 or 2x2x2.
        gke: value of the node label cloud.google.com/gke-tpu-accelerator.
        machine: GKE's machine type.
    """

    name: str
    generation: Generation
    chips: int
    chips_per_host: int
    topology: str
    gke: str
    machine: str

    @property
    def devices(self) -> int:
        """Devices that JAX shows."""
        return self.chips * self.generation.devices_per_chip

    @property
    def hosts(self) -> int:
        """Machines, each with one process."""
        return self.chips // self.chips_per_host


_PLANE = ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBE = (
    "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16",
)  # fmt: skip
GENERATIONS = (
    Generation(
        "v3", 2, 2, "tpu-v3-slice", "ct3p-hightpu-4t", "tpu-ubuntu2204-base", 123e12, False,
        (*_PLANE, "16x32", "32x32"),
    ),
    Generation(
        "v4", 2, 1, "tpu-v4-podslice", "ct4p-hightpu-4t", "tpu-ubuntu2204-base", 275e12, True,
        (*_CUBE, "16x16x16"),
    ),
    Generation(
        "v5litepod", 1, 1, "tpu-v5-lite-podslice", "ct5lp-hightpu-4t", "v2-alpha-tpuv5-lite",
        197e12, True, ("1x1", "2x4", *_PLANE),
    ),
    Generation(
        "v5p", 2, 1, "tpu-v5p-slice", "ct5p-hightpu-4t", "v2-alpha-tpuv5", 459e12, True,
        (*_CUBE, "16x16x16"),
    ),
    Generation(
        "v6e", 1, 1, "tpu-v6e-slice", "ct6e-standard-4t", "v2-alpha-tpuv6e", 918e12, True,
        ("1x1", "2x4", *_PLANE),
    ),
    Generation(
        "tpu7x", 2, 2, "tpu7x", "tpu7x-standard-4t", None, 2307e12, True, _CUBE,
    ),
)  # fmt: skip
_ALIASES = {"v5e": "v5litepod", "v7x": "tpu7x"}


def _slices() -> dict[str, Slice]:
    found = {}
    for generation in GENERATIONS:
        for topology in generation.topologies:
            chips = math.prod(map(int, topology.split("x")))
            name = f"{generation.prefix}-{chips * generation.counts}"
            per_host, gke, machine = min(chips, 4), generation.gke, generation.machine
            # Eight chips of v5e and v6e sit in one host, where they need no network between hosts.
            if topology in ("1x1", "2x4") and generation.counts == 1:
                per_host, machine = chips, machine.replace("-4t", f"-{chips}t")
            if name == "v3-8":
                gke, machine = "tpu-v3-device", "ct3-hightpu-4t"
            found[name] = Slice(name, generation, chips, per_host, topology, gke, machine)
    return found


SLICES = _slices()


def find_slice(name: str) -> Slice:
    """Returns the slice of an accelerator type; v5e-N is taken as v5litepod-N.

    Raises:
        LaunchError: if there is no such type, with the nearest one.
    """
    prefix, _, rest = name.strip().lower().partition("-")
    canonical = f"{_ALIASES.get(prefix, prefix)}-{rest}"
    if canonical in SLICES:
        return SLICES[canonical]
    raise LaunchError(f"{name!r}: unknown type of accelerator; {_nearest(canonical)}")


def check_slices(slice_: Slice, count: int, where: str) -> None:
    """Checks that `count` slices can work together on "Cloud TPU VMs" or "GKE".

    Raises:
        LaunchError: if they cannot.
    """
    if count == 1:
        return
    if not slice_.generation.multislice:
        raise LaunchError(
            f"{count} x {slice_.name}: {slice_.generation.prefix} slices cannot be joined; take "
            "one larger slice, or v4 and later"
        )
    if where == "GKE" and slice_.hosts == 1:
        raise LaunchError(
            f"{count} x {slice_.name}: GKE joins only slices of several hosts and this has one; "
            "take a larger type"
        )


def _nearest(name: str) -> str:
    same = [s for s in SLICES if s.partition("-")[0] == name.partition("-")[0]]
    size = re.fullmatch(r"[a-z0-9]+-([0-9]{1,9})", name)
    if same and size:
        near = min(
            same, key=lambda s: abs(math.log(int(s.partition("-")[2]) / max(1, int(size[1]))))
        )
        return f"the nearest is {near}; known: {', '.join(same)}"
    close = difflib.get_close_matches(name, SLICES, n=1)
    kinds = ", ".join(f"{g.prefix}-N" for g in GENERATIONS)
    return f"did you mean {close[0]}?" if close else f"expected one of {kinds}"
