"""Learning rates at the steps that matter, in both forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.optim import warmup_polynomial_decay

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
