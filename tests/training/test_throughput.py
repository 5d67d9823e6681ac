"""Rates leave out what is not training, and never guess a peak."""

import time

import pytest

from bert_lamb import model
from bert_lamb.config import PRESETS, ModelConfig
from bert_lamb.training.throughput import PEAK_FLOPS, Stopwatch


def _stopwatch(kind: str) -> Stopwatch:
    return Stopwatch(rows=4, seq_length=10, flops_per_row=1000, device_kind=kind, devices=2)


def test_p69_compilation_and_pauses_are_left_out():
    watch = _stopwatch("cpu")
    time.sleep(0.2)  # the compile of the first step
    watch.start()
    watch.stop(steps=2, tokens=60)
    assert watch.seconds < 0.1
    time.sleep(0.2)  # an evaluation
    watch.start()
    watch.stop(steps=1, tokens=30)
    assert watch.seconds < 0.1
    speed = watch.total()
    assert watch.steps == 3
    assert speed.padding == pytest.approx(1 - 90 / 120)
    assert speed.sequences == pytest.approx(12 / watch.seconds)
    assert speed.tokens == pytest.approx(90 / watch.seconds)


def test_p67_share_of_peak_is_known_or_absent():
    for kind, peak in [*PEAK_FLOPS.items(), ("cpu", None), ("TPU v99", None)]:
        watch = _stopwatch(kind)
        watch.start()
        speed = watch.stop(steps=5, tokens=200)
        if peak is None:
            assert speed.peak_share is None
        else:
            assert speed.peak_share == pytest.approx(speed.model_flops / (2 * peak))


def test_p67_flops_of_bert_base_match_a_count_by_hand():
    T, P, D, F, V, L = 128, 20, 768, 3072, 30522, 12
    layer = 2 * T * (4 * D * D + 2 * D * F) + 2 * 2 * T * T * D
    heads = 2 * P * (D * D + D * V) + 2 * D * D + 2 * D * 2
    by_hand = 3 * (L * layer + heads)
    counted = model.flops_per_row(ModelConfig(vocab_size=V, **PRESETS["base"]), T, P)
    assert counted == pytest.approx(by_hand, rel=0.01)


def test_nothing_done_has_no_rate():
    watch = _stopwatch("cpu")
    assert watch.total() is None
    assert watch.stop(1, 1.0) is None
