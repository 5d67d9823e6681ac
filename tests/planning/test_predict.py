"""Seconds from figures, against sums made by hand."""

import dataclasses

import pytest

from bert_lamb.planning.chips import CHIPS
from bert_lamb.planning.parts import PARTS, RANDOM
from bert_lamb.planning.predict import COMPUTATION, Assumptions, predict
from bert_lamb.planning.reading import Exchange, Memory, Product, StepReading
from bert_lamb.planning.torus import Ring, Span, seconds

CHIP = {chip.generation: chip for chip in CHIPS}
RING = Span(32, 2, 1, (Ring(32, True),))
SUMMED = Exchange(
    "all-reduce", ("data",), ("f32",), 2**28, times=1, in_loop=False, asynchronous=False,
    span=RING, beside=(),
)  # fmt: skip
GATHERED = dataclasses.replace(
    SUMMED, kind="all-gather", axes=None, dtypes=("bf16",), asynchronous=True, beside=(0, 1)
)
READING = StepReading(
    memory=Memory(100, 90, 80, 1000, 7),
    cycles={part: 940_000 * (number + 1) for number, part in enumerate(PARTS)},
    branch_cycles=9_400,
    random_bytes=400_000_000,
    flops=10**12,
    compiler_flops=None,
    exchanges=(SUMMED, GATHERED),
    products=(Product(94_000, 10**9), Product(47_000, 10**9)),
    unknown_loops=0,
    compile_seconds=1.0,
)


def test_the_peak_is_all_that_lives_at_once():
    assert READING.memory.peak == 100 + 90 - 80 + 1000 + 7


def test_cycles_over_the_clock_and_bits_over_their_rate():
    prediction = predict(READING, CHIP["v3"], Assumptions())
    assert prediction.basis == "compiler's cycles"
    assert prediction.branches == pytest.approx(10e-6)
    for number, part in enumerate(PARTS):
        bits = 2e-3 if part == RANDOM else 0
        assert prediction.computing[part] == pytest.approx((number + 1) * 1e-3 + bits)


def test_products_hide_what_runs_beside_them_and_kappa_multiplies_the_rest():
    prediction = predict(READING, CHIP["v3"], Assumptions(kappa=1.2))
    gather = seconds("all-gather", 2**28, RING, CHIP["v3"])
    assert prediction.hidden == pytest.approx(150e-6)  # both products, less than the gather takes
    assert prediction.hidden < gather
    total = seconds("all-reduce", 2**28, RING, CHIP["v3"]) + gather
    assert prediction.communication == pytest.approx(total)
    assert prediction.exposed == pytest.approx(total - 150e-6)
    computing = sum(range(1, len(PARTS) + 1)) * 1e-3 + 2e-3
    assert prediction.estimate == pytest.approx(computing + prediction.exposed)
    assert prediction.seconds == pytest.approx(1.2 * prediction.estimate)


def test_a_product_hides_one_collective_only():
    twice = dataclasses.replace(READING, exchanges=(GATHERED, GATHERED))
    prediction = predict(twice, CHIP["v3"], Assumptions())
    assert prediction.hidden == pytest.approx(150e-6)
    (transfer,) = prediction.transfers.values()
    assert (transfer.count, transfer.runs, transfer.bytes) == (2, 2, 2**29)


def test_collectives_in_a_loop_run_and_hide_in_every_round():
    layered = dataclasses.replace(GATHERED, times=24, in_loop=True)
    prediction = predict(
        dataclasses.replace(READING, exchanges=(layered,)), CHIP["v3"], Assumptions()
    )
    (transfer,) = prediction.transfers.values()
    assert (transfer.count, transfer.runs, transfer.where) == (1, 24, "loop async")
    assert transfer.over == "parts of axes"
    assert prediction.hidden == pytest.approx(24 * 150e-6)


def test_other_generations_get_a_time_at_the_utilization_that_is_stated_only():
    silent = predict(READING, CHIP["v5e"], Assumptions())
    assert (silent.basis, silent.seconds, silent.estimate, silent.hidden) == ("", None, None, None)
    assert silent.communication > 0
    stated = predict(READING, CHIP["v5e"], Assumptions(utilization=0.5))
    assert stated.basis == "50% of the peak, as stated"
    assert stated.computing == {COMPUTATION: pytest.approx(1e12 / (197e12 / 2))}
    assert stated.hidden == pytest.approx(2 * 1e9 / (197e12 / 2))
    assert stated.seconds == pytest.approx(stated.computing[COMPUTATION] + stated.exposed)


def test_without_the_bandwidth_of_links_there_is_no_time():
    prediction = predict(READING, CHIP["tpu7x"], Assumptions(utilization=0.5))
    assert prediction.communication is None
    assert prediction.seconds is None
    alone = dataclasses.replace(READING, exchanges=())
    assert predict(alone, CHIP["tpu7x"], Assumptions(utilization=0.5)).seconds > 0
