"""Counts of parameters and operations against counts made by hand."""

import dataclasses

import pytest

from bert_lamb.config import PRESETS, ModelConfig
from bert_lamb.model import count_params, flops_per_row

BASE = ModelConfig(vocab_size=30522, **PRESETS["base"])


@pytest.mark.parametrize(("size", "count"), [("base", 110_106_428), ("large", 336_226_108)])
def test_parameters_of_the_published_models(size, count):
    config = ModelConfig(vocab_size=30522, **PRESETS[size])
    assert count_params(config) == count
    assert count_params(dataclasses.replace(config, vocab_multiple=1)) == count


def test_p67_flops_of_bert_base_equal_a_hand_count():
    # 84,934,656 weights in the encoder's products, two operations each for each of 128 tokens.
    encoder = 2 * 128 * 84_934_656
    # 12 layers of 12 heads: scores and values, each 128 x 128 x 64 multiplications and additions.
    attention = 12 * 12 * 2 * 2 * 128 * 128 * 64
    # 20 positions through 768 x 768 and 768 x 30522; one token through the pooler and 768 x 2.
    heads = 20 * 2 * (589_824 + 23_440_896) + 2 * 589_824 + 2 * 1536
    by_hand = 3 * (encoder + attention + heads)
    assert by_hand == pytest.approx(69.93e9, rel=1e-3)
    assert flops_per_row(BASE, T=128, P=20) == pytest.approx(by_hand, rel=0.01)


def test_flops_need_the_vocabulary_and_ignore_its_padding():
    with pytest.raises(ValueError, match="vocab_size = 0"):
        flops_per_row(dataclasses.replace(BASE, vocab_size=0), T=128, P=20)
    padded = dataclasses.replace(BASE, vocab_multiple=4096)
    assert flops_per_row(padded, T=128, P=20) == flops_per_row(BASE, T=128, P=20)
