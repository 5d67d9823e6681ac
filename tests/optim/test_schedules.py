"""Learning rates at the steps that matter, in both forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.optim.schedules import (
    join_phases,
    mlperf_warmup_decay,
    warmup_constant_decay,
    warmup_polynomial_decay,
    warmup_token_decay,
)

# The mixed-batch run's two stages and NVIDIA's: peak, warm-up, total, power.
PHASES = {
    "65536_stage_1": (6e-3, 2000, 7037, 0.5),
    "32768_stage_2": (4e-3, 200, 1562, 0.5),
    "nvidia_phase_1": (6e-3, 2000, 7038, 0.5),
    "nvidia_phase_2": (4e-3, 200, 1563, 0.5),
    "table_1_32k": (5e-3, 3125, 15625, 1.0),
    "table_1_512": (6.25e-4, 3125, 1_000_000, 1.0),
    "short_10": (1e-3, 3, 10, 1.0),
    "short_5": (1e-3, 2, 5, 1.0),
}

# Peak, warm-up, start and updates of MLPerf's reference settings, by batch size.
MLPERF = {
    256: (3.5e-4, 0, 0, 13700),
    1536: (2e-3, 0, 0, 2254),
    3072: (2e-3, 100, 0, 1141),
    4608: (3.5e-3, 0, 0, 700),
    8192: (2.88293e-3, 287, -76, 600),
    16384: (3.3e-3, 290, -100, 600),
}


@pytest.mark.parametrize("form", ["continuous", "from_zero"])
@pytest.mark.parametrize("name", PHASES)
def test_p46_first_peak_and_last_step(name, form):
    peak, warmup, total, power = PHASES[name]
    schedule = warmup_polynomial_decay(peak, warmup, total, power, form)
    assert float(schedule(0)) == pytest.approx(peak / warmup, rel=1e-6)
    assert schedule(warmup - 1) == np.float32(peak)
    assert 0 < schedule(total - 1) < 0.05 * peak or total < 100
    assert schedule(total) == 0
    rates = np.asarray(jax.jit(schedule)(np.arange(total)))
    assert rates.min() > 0
    assert rates.argmax() == warmup - 1
    assert np.all(np.diff(rates[:warmup]) > 0)
    assert np.all(np.diff(rates[warmup - 1 :]) < 0)


def test_p46_each_phase_counts_from_its_own_first_update():
    first = warmup_polynomial_decay(1e-3, 3, 10)
    second = warmup_polynomial_decay(5e-4, 2, 5)
    assert first(10) == 0
    assert second(0) == np.float32(2.5e-4)
    assert second(1) == np.float32(5e-4)
    assert second(4) > 0
    assert second(5) == 0


@pytest.mark.parametrize(
    ("peak", "warmup", "total", "after_warmup"),
    [(6e-3, 2000, 7038, 5.076e-3), (4e-3, 200, 1563, 3.734e-3)],
)
def test_from_zero_drops_where_the_warm_up_ends(peak, warmup, total, after_warmup):
    """Update W + 1 of NVIDIA's phases; the continuous form goes on from the peak."""
    drops = warmup_polynomial_decay(peak, warmup, total, 0.5, "from_zero")
    assert float(drops(warmup)) == pytest.approx(after_warmup, abs=5e-7)
    goes_on = warmup_polynomial_decay(peak, warmup, total, 0.5, "continuous")
    assert float(goes_on(warmup)) == pytest.approx(peak, rel=1e-3)


def test_from_zero_lies_between_google_s_and_nvidia_s_decay():
    peak, total, power = 6e-3, 7038, 0.5
    schedule = warmup_polynomial_decay(peak, 2000, total, power, "from_zero")
    step = np.arange(2001, total + 1, dtype=np.float64)  # number of the update
    rates = np.asarray(schedule(np.arange(2000, total)), np.float64)
    google = peak * (1 - (step - 1) / total) ** power
    nvidia = peak * (1 - step / total) ** power
    assert np.all(rates <= google * (1 + 1e-6))
    assert np.all(rates >= nvidia * (1 - 1e-6))


@pytest.mark.parametrize("form", ["continuous", "from_zero"])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (1, 1), (0, 7), (1, 7), (7, 7)])
def test_warm_up_of_none_and_of_all_updates(warmup, total, power, form):
    schedule = warmup_polynomial_decay(1.0, warmup, total, power, form)
    rates = np.asarray(jax.jit(schedule)(np.arange(total + 1)))
    assert np.all(np.isfinite(rates))
    assert np.all(rates[:total] > 0)
    assert rates[max(warmup, 1) - 1] == rates.max() == 1
    assert rates[total] == 0


@pytest.mark.parametrize("form", ["continuous", "from_zero"])
def test_same_rates_for_ints_arrays_and_traced_counts(form):
    schedule = warmup_polynomial_decay(6e-3, 20, 70, 0.5, form)
    traced = jax.jit(schedule)
    for count in (0, 19, 20, 45, 69, 70):
        rate = schedule(count)
        assert rate.dtype == jnp.float32
        assert rate.shape == ()
        assert schedule(jnp.int32(count)) == rate
        assert schedule(np.int64(count)) == rate
        assert float(traced(jnp.int32(count))) == pytest.approx(float(rate), rel=3e-7)


def test_dtype_is_float32_with_64_bit_types_enabled():
    with jax.enable_x64(True):
        assert warmup_polynomial_decay(1e-3, 2, 5)(jnp.int64(1)).dtype == jnp.float32


def test_counts_outside_of_the_phase_take_its_nearer_end():
    schedule = warmup_polynomial_decay(1e-3, 2, 5)
    assert schedule(6) == schedule(10**9) == schedule(jnp.int32(2**31 - 1)) == 0
    assert schedule(-1) == schedule(0)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_late_rates_of_a_long_phase_are_exact(power):
    """In float32 1 - s / T is off by up to half of its value at the end of a million updates."""
    total, warmup = 1_000_000, 3125
    schedule = warmup_polynomial_decay(6.25e-4, warmup, total, power)
    for count in (total - 1, total - 2, total - 1000):
        exact = 6.25e-4 * ((total - count) / (total + 1 - warmup)) ** power
        assert float(schedule(count)) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peak": -1.0}, r"peak = -1\.0"),
        ({"warmup_steps": -1}, "warmup_steps = -1: expected from 0 to total_steps = 10"),
        ({"warmup_steps": 11}, "warmup_steps = 11: expected from 0 to total_steps = 10"),
        ({"warmup_steps": 0.2843}, r"warmup_steps = 0\.2843: expected a whole number"),
        ({"total_steps": 0, "warmup_steps": 0}, "total_steps = 0: expected at least 1"),
        ({"power": 0.0}, r"power = 0\.0"),
        ({"form": "cosine"}, "form = 'cosine': expected one of continuous, from_zero"),
    ],
)
def test_impossible_argument_is_named(arguments, message):
    defaults = {"peak": 1e-3, "warmup_steps": 2, "total_steps": 10}
    with pytest.raises(ValueError, match=message):
        warmup_polynomial_decay(**(defaults | arguments))


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize(
    ("warmup", "constant", "total"),
    [(1500, 962, 3519), (150, 84, 782), (3, 0, 10), (0, 4, 9), (4, 5, 9), (0, 0, 1)],
)
def test_constant_phase_between_warm_up_and_decay(warmup, constant, total, power):
    schedule = warmup_constant_decay(6.75e-3, warmup, constant, total, power)
    rates = np.asarray(jax.jit(schedule)(np.arange(total + 1)), np.float64)
    step = np.arange(1, total + 2)
    rise, hold = max(warmup, 1), max(warmup + constant, 1)
    falling = np.clip((total + 1 - step) / (total + 1 - hold), 0, 1) ** power
    expected = 6.75e-3 * np.where(step <= hold, np.minimum(step / rise, 1), falling)
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert np.all(rates[:total] > 0)
    assert np.all(rates[rise - 1 : hold] == np.float32(6.75e-3))
    assert np.all(rates[hold:] < np.float32(6.75e-3))
    assert rates[total] == 0


@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (3, 10), (10, 10)])
def test_without_a_constant_phase_it_is_the_polynomial_decay(warmup, total):
    counts = np.arange(-1, total + 2)
    np.testing.assert_array_equal(
        warmup_constant_decay(1e-3, warmup, 0, total, 0.5)(counts),
        warmup_polynomial_decay(1e-3, warmup, total, 0.5)(counts),
    )


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("batch", MLPERF)
def test_mlperf_s_settings_give_its_formula(batch, power):
    peak, warmup, start, total = MLPERF[batch]
    schedule = mlperf_warmup_decay(peak, warmup, total, start, power)
    expected = [
        (s - start) / warmup * peak if s - start < warmup else peak * (1 - s / total) ** power
        for s in range(1, total + 1)
    ]
    rates = np.asarray(jax.jit(schedule)(np.arange(total)))
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert np.all(rates[:-1] > 0)
    assert rates[-1] == schedule(total) == schedule(10 * total) == 0


def test_mlperf_s_rates_at_the_ends_of_the_warm_up():
    """At batch 8192: 77/287 of 2.88293e-3, 286/287 of it, then 1 - 211/600 of it."""
    schedule = mlperf_warmup_decay(2.88293e-3, 287, 600, start_warmup_step=-76)
    assert float(schedule(0)) == pytest.approx(7.73469e-4, rel=1e-5)
    assert float(schedule(209)) == pytest.approx(2.872885e-3, rel=1e-5)
    assert float(schedule(210)) == pytest.approx(1.869100e-3, rel=1e-5)


def test_joined_phases_count_from_their_own_first_update():
    """The mixed-batch run: the second stage warms up again from 0."""
    first = warmup_polynomial_decay(6e-3, 2000, 7037, 0.5)
    second = warmup_polynomial_decay(4e-3, 200, 1562, 0.5)
    schedule = join_phases([(first, 7037), (second, 1562)])
    traced = jax.jit(schedule)
    for count, expected in [
        (0, first(0)),
        (1999, 6e-3),
        (7036, first(7036)),
        (7037, 4e-3 / 200),
        (7236, 4e-3),
        (8598, second(1561)),
        (8599, 0),
        (10**6, 0),
    ]:
        assert float(schedule(count)) == pytest.approx(float(expected), rel=1e-6)
        assert float(traced(jnp.int32(count))) == pytest.approx(float(expected), rel=1e-6)
    assert schedule(7036) > 0
    rates = np.asarray(traced(np.arange(8599)))
    np.testing.assert_allclose(rates[7037:], second(np.arange(1562)), rtol=1e-6)


def test_a_phase_may_end_before_its_schedule():
    schedule = join_phases(iter([(lambda count: 10 + count, 2), (lambda count: 20 + count, 1)]))
    assert [int(schedule(count)) for count in range(5)] == [10, 11, 20, 21, 22]


# A warm-up of the length from 128 to 512 at batch 32768, to table 1's 8.52e10 tokens.
TOKENS = 85_200_000_000
LENGTHS = [(1000, 32768 * 128), (1000, 32768 * 256), (1000, 32768 * 384), (1, 32768 * 512)]


def consumed(count, stages):
    """Tokens of the first updates, in Python's integers."""
    tokens = 0
    for updates, size in stages[:-1]:
        tokens += min(count, updates) * size
        count -= min(count, updates)
    return tokens + count * stages[-1][1]


@pytest.mark.parametrize("warmup", [0, 1, 200, 1000, 2500])
def test_tokens_beyond_int32_decay_exactly(warmup):
    assert not jax.config.jax_enable_x64
    total = next(n for n in range(4000, 9000) if consumed(n, LENGTHS) >= TOKENS)
    schedule = warmup_token_decay(5e-3, warmup, TOKENS, LENGTHS)
    rates = np.asarray(jax.jit(schedule)(np.arange(total + 2)))
    rise = max(warmup, 1)
    whole = TOKENS - consumed(rise - 1, LENGTHS)
    expected = [
        5e-3 * (s / rise if s <= rise else (TOKENS - consumed(s - 1, LENGTHS)) / whole)
        for s in range(1, total + 1)
    ]
    np.testing.assert_allclose(rates[:total], expected, rtol=1e-6)
    assert rates.dtype == np.float32
    assert rates[:total].min() > 0
    assert rates.argmax() == rise - 1
    assert rates[rise - 1] == np.float32(5e-3)
    np.testing.assert_array_equal(rates[total:], 0)
    assert schedule(10**9) == 0
    assert schedule(total - 1) == rates[total - 1]


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_updates_of_one_size_decay_by_tokens_as_by_updates(power):
    by_tokens = warmup_token_decay(1e-3, 3, 10 * 2**33, [(4, 2**33), (1, 2**33)], power)
    by_updates = warmup_polynomial_decay(1e-3, 3, 10, power)
    counts = np.arange(-1, 12)
    np.testing.assert_allclose(by_tokens(counts), by_updates(counts), rtol=1e-6)


@pytest.mark.parametrize(
    ("total", "updates"), [(1, 1), (10, 1), (11, 2), (40, 4), (41, 5), (60, 5), (61, 6)]
)
def test_run_ends_with_the_update_that_consumes_the_last_token(total, updates):
    schedule = warmup_token_decay(1.0, 0, total, [(4, 10), (9, 20)])
    rates = np.asarray(schedule(np.arange(8)))
    np.testing.assert_array_equal(rates > 0, np.arange(8) < updates)
    assert rates[0] == 1


def test_last_rates_by_tokens_keep_their_precision():
    """One token is left for the last update of 8.52e10 tokens."""
    tokens = 8200 * 10_390_244 + 1
    schedule = warmup_token_decay(1.0, 1, tokens, [(1, 10_390_244)])
    assert float(schedule(8200)) == pytest.approx(1 / tokens, rel=1e-6)
    assert schedule(8201) == 0


@pytest.mark.parametrize(
    ("build", "arguments", "message"),
    [
        (warmup_constant_decay, (1.0, 4, 7, 10), r"constant_steps = 7: .*warmup_steps = 6"),
        (warmup_constant_decay, (1.0, 4, -1, 10), "constant_steps = -1: expected from 0"),
        (warmup_constant_decay, (1.0, 4, 0.5, 10), r"constant_steps = 0\.5: expected a whole"),
        (mlperf_warmup_decay, (1.0, 2, 10, 1), "start_warmup_step = 1: expected 0 or less"),
        (mlperf_warmup_decay, (1.0, 16, 10, -5), r"warmup_steps = 16: .*warmup_step = 15"),
        (mlperf_warmup_decay, (1.0, 2, 10, 0.5), r"start_warmup_step = 0\.5: expected a whole"),
        (warmup_token_decay, (1.0, 0, 8.5e10, [(1, 1)]), "total_tokens = 85.*number of tokens"),
        (warmup_token_decay, (1.0, 0, 0, [(1, 1)]), "total_tokens = 0: expected at least 1"),
        (warmup_token_decay, (1.0, 0, 9, []), "stages is empty"),
        (warmup_token_decay, (1.0, 0, 9, [(0, 1)]), r"stages\[0\]\[0\] = 0: .*at least 1"),
        (warmup_token_decay, (1.0, 0, 9, [(1, 1), (1, 0)]), r"stages\[1\]\[1\] = 0"),
        (warmup_token_decay, (1.0, 4, 9, [(1, 3)]), "warmup_steps = 4: .*total_tokens = 3"),
        (warmup_token_decay, (1.0, 0, TOKENS, [(1, 1)]), r"updates of total_tokens .*2\*\*31"),
        (join_phases, ([],), "phases is empty"),
        (join_phases, ([(1e-3, 5)],), r"phases\[0\]\[0\] = 0\.001: expected a schedule"),
        (join_phases, ([(abs, 5), (abs, 2.5)],), r"phases\[1\]\[1\] = 2\.5: expected a whole"),
        (join_phases, ([(abs, 0)],), r"phases\[0\]\[1\] = 0: expected at least 1"),
    ],
)
def test_impossible_argument_of_the_other_schedules_is_named(build, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(*arguments)
