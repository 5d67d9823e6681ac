"""Where groups of devices lie on a torus and how long they exchange, against hand-made numbers."""

import dataclasses
import itertools
from dataclasses import dataclass

import pytest

from bert_lamb.planning.chips import CHIPS, Chip
from bert_lamb.planning.torus import EFFICIENCY, LARGE, LATENCY, Ring, Span, seconds, span_of

CHIP = {chip.generation: chip for chip in CHIPS}
V3, V5E, V5P = CHIP["v3"], CHIP["v5e"], CHIP["v5p"]
LINK = 82e9 * 0.7  # bytes a second of one v3 link in one direction, derated


@dataclass(frozen=True)
class Place:
    """All of a device that the model looks at."""

    coords: tuple[int, int, int]


def _devices(x: int, y: int, z: int = 1, cores: int = 1) -> list[Place]:
    """The devices of a slice, x changing fastest, the cores of a chip side by side."""
    places = ((i, j, k) for k, j, i in itertools.product(range(z), range(y), range(x)))
    return [Place(place) for place in places for _ in range(cores)]


def _span(devices: list[Place], chip: Chip, *groups: list[int]) -> Span | None:
    return span_of(groups, devices, chip)  # type: ignore[arg-type]


POD = _devices(32, 32, cores=2)
ROW = list(range(64))  # both cores of the 32 chips with y = 0


def test_all_devices_of_a_pod_are_two_rings_of_whole_chips():
    span = _span(POD, V3, list(range(2048)))
    assert span == Span(1024, 2, 1, (Ring(32, True), Ring(32, True)))
    assert span.links == 4


def test_a_row_of_a_pod_is_one_ring_and_a_row_of_a_part_of_it_a_line():
    assert _span(POD, V3, ROW) == Span(32, 2, 1, (Ring(32, True),))
    assert _span(_devices(16, 16, cores=2), V3, list(range(32))) == Span(
        16, 2, 1, (Ring(16, False),)
    )
    assert _span(_devices(16, 16), V5E, list(range(16))) == Span(16, 1, 1, (Ring(16, True),))


def test_one_core_of_each_chip_shares_the_links_with_the_other():
    span = _span(POD, V3, ROW[::2], ROW[1::2])
    assert span == Span(32, 1, 2, (Ring(32, True),))
    assert span.links == 1


def test_interleaved_groups_share_the_links_between_their_chips():
    groups = [list(range(start, 16, 4)) for start in range(4)]
    span = _span(_devices(16, 16), V5E, *groups)
    assert span == Span(4, 1, 1, (Ring(4, True, 4),))
    assert span.links == pytest.approx(2 / 4)


def test_neighbours_inside_a_ring_are_a_line():
    assert _span(_devices(16, 16), V5E, list(range(4))) == Span(4, 1, 1, (Ring(4, False),))


def test_sides_of_a_slice_in_three_dimensions_close_where_all_are_whole_cubes():
    whole, part = _devices(4, 4, 8), _devices(2, 2, 4)
    assert _span(whole, V5P, list(range(128))).rings == (
        Ring(4, True), Ring(4, True), Ring(8, True),
    )  # fmt: skip
    assert _span(part, V5P, list(range(16))).rings == (
        Ring(2, False), Ring(2, False), Ring(4, False),
    )  # fmt: skip


def test_what_is_no_box_counts_as_one_line():
    span = _span(_devices(4, 4), V5E, [0, 1, 5])
    assert span == Span(3, 1, 1, (Ring(3, False),), box=False)
    assert str(span) == "3 line (no box)"


def test_devices_alone_and_cores_of_one_chip_take_no_time():
    assert _span(POD, V3, [0], [1]) is None
    inside = _span(POD, V3, [0, 1])
    assert inside == Span(1, 2, 1, ())
    for span in (None, inside):
        assert seconds("all-reduce", 2**30, span, V3) == 0


def test_the_slowest_of_different_groups_counts():
    near, far = [0, 1, 2, 3], [4, 8, 12]
    span = _span(_devices(16, 16), V5E, near, far)
    assert span == Span(3, 1, 1, (Ring(3, False, 4),))


def test_fp32_gradients_of_bert_large_over_a_pod_take_what_they_do_by_hand():
    # 336,226,108 numbers over four links: 2 * 1.345e9 * 1023/1024 / (4 * 82e9 * 0.7).
    span = _span(POD, V3, list(range(2048)))
    by_hand = 2 * 4 * 336_226_108 * 1023 / 1024 / (4 * LINK)
    assert by_hand == pytest.approx(11.70e-3, rel=1e-3)
    assert seconds("all-reduce", 4 * 336_226_108, span, V3) == pytest.approx(by_hand + 0.15e-3)


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_one_ring_of_a_pod_moves_an_array_over_two_links(kind):
    size = 672_452_216  # the weights in bf16
    by_hand = size * 31 / 32 / (2 * LINK)
    assert seconds(kind, size, _span(POD, V3, ROW), V3) == pytest.approx(by_hand + 0.15e-3)


def test_a_line_moves_an_array_at_half_the_speed_of_a_ring():
    ring, line = (Span(8, 1, 1, (Ring(8, joined),)) for joined in (True, False))
    size = 100 * LARGE
    fast, slow = (seconds("all-gather", size, span, V5E) for span in (ring, line))
    assert slow - LATENCY == pytest.approx(2 * (fast - LATENCY))


def test_exchanges_of_all_with_all_cross_the_middle_of_the_ring():
    # Of 16 chips on a ring each sends 1/16 to each; half of it crosses to the other half over two
    # links in each direction: 8 * 8/16 B over 2 links.
    span, size = Span(16, 1, 1, (Ring(16, True),)), 100 * LARGE
    by_hand = size * 8 * 8 / 16 / 2 / (V5E.link_bandwidth * EFFICIENCY)
    assert seconds("all-to-all", size, span, V5E) == pytest.approx(by_hand + LATENCY)


def test_a_permutation_passes_one_link_with_what_all_cores_send():
    size = 100 * LARGE
    both = seconds("collective-permute", size, Span(32, 2, 1, (Ring(32, True),)), V3)
    assert both == pytest.approx(2 * size / (V3.link_bandwidth * EFFICIENCY) + LATENCY)


def test_small_arrays_have_no_latency_in_this_model():
    span = Span(1024, 2, 1, (Ring(32, True), Ring(32, True)))
    assert seconds("all-reduce", 8, span, V3) < 1e-9
    assert seconds("all-reduce", LARGE, span, V3) > LATENCY


def test_unknown_links_give_no_time():
    span = Span(4, 1, 1, (Ring(4, False),))
    assert seconds("all-gather", 2**20, span, CHIP["tpu7x"]) is None
    unknown = dataclasses.replace(V3, link_bandwidth=None)
    assert seconds("all-gather", 2**20, span, unknown) is None


def test_every_generation_names_a_source_and_has_a_peak():
    for chip in CHIPS:
        assert chip.source
        assert chip.peak_flops is not None, chip.generation
        assert chip.links in (4, 6)
