"""The batch-size rules against table 1 of the LAMB paper, as printed there."""

import math

import pytest

from bert_lamb.optim.scaling import Recipe, linear_epoch_warmup, sqrt_scaled, untuned_lamb

# Batch, x of the learning rate 5 / (2**x * 1000), that rate, warm-up ratio, updates.
TABLE_1 = [
    (512, 3.0, "0.000625", 1 / 320, 1_000_000),
    (1024, 2.5, "0.0008839", 1 / 160, 500_000),
    (2048, 2.0, "0.00125", 1 / 80, 250_000),
    (4096, 1.5, "0.001768", 1 / 40, 125_000),
    (8192, 1.0, "0.0025", 1 / 20, 62_500),
    (16384, 0.5, "0.003536", 1 / 10, 31_250),
    (32768, 0.0, "0.005", 1 / 5, 15_625),
]


@pytest.mark.parametrize(("batch", "x", "printed", "ratio", "steps"), TABLE_1)
def test_row_of_table_1(batch, x, printed, ratio, steps):
    recipe = untuned_lamb(batch)
    assert isinstance(recipe, Recipe)
    assert f"{recipe.learning_rate:.4g}" == printed
    assert recipe.learning_rate == pytest.approx(5 / (2**x * 1000), rel=1e-15)
    assert recipe[1:] == (ratio, 3125, steps)
    assert ratio * steps == pytest.approx(3125, rel=1e-15)


@pytest.mark.parametrize("batch", [1, 48, 500, 6000, 49_152, 65_536, 98_304, 163_840])
def test_other_batches_see_no_fewer_examples(batch):
    rate, ratio, warmup, steps = untuned_lamb(batch)
    assert 0 <= steps * batch - 512_000_000 < batch
    assert rate == pytest.approx(5e-3 * math.sqrt(batch / 32768))
    assert warmup == 3125 <= steps
    assert abs(ratio * steps - warmup) <= 1
    assert 0 < ratio <= 1


def test_rules_alone():
    assert sqrt_scaled(1e-3, 256, 1024) == 2e-3
    assert sqrt_scaled(1e-3, 1024, 256) == 5e-4
    assert sqrt_scaled(0.0, 1, 2) == 0
    assert linear_epoch_warmup(0.1, 256, 1024) == 0.4
    assert linear_epoch_warmup(0.5, 256, 512) == 1
    assert linear_epoch_warmup(0.4, 1024, 256) == 0.1


@pytest.mark.parametrize(
    ("build", "arguments", "message"),
    [
        (sqrt_scaled, (-1e-3, 1, 1), r"lr = -0\.001: expected 0 or more"),
        (sqrt_scaled, (1e-3, 0, 1), "base_batch = 0: expected more than 0"),
        (sqrt_scaled, (1e-3, 1, -8), "batch = -8: expected more than 0"),
        (sqrt_scaled, (1e-3, 1, math.nan), "batch = nan: expected more than 0"),
        (linear_epoch_warmup, (1.5, 1, 1), r"ratio = 1\.5: expected from 0 to 1"),
        (linear_epoch_warmup, (0.1, 1, 0), "batch = 0: expected more than 0"),
        (linear_epoch_warmup, (0.5, 1, 4), r"ratio at the new batch = 2\.0: expected at most 1"),
        (untuned_lamb, (0,), "batch = 0: expected a whole number of examples from 1 to 163840"),
        (untuned_lamb, (-512,), "batch = -512"),
        (untuned_lamb, (512.5,), r"batch = 512\.5"),
        (untuned_lamb, (163_841,), "batch = 163841"),
    ],
)
def test_impossible_argument_is_named(build, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(*arguments)
