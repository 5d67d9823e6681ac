"""Optimizers inside other transforms: accumulation, skipping, master weights, EMA, checkpoints."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from bert_lamb.optim import (
    lamb,
    lans,
    lars,
    path_mask,
    raise_if_stuck,
    skip_nonfinite,
    trust_ratios,
    warmup_polynomial_decay,
    with_master_weights,
)
from tests.trees import assert_trees_close, random_like, run

START = {"kernel": jnp.array([3.0, 4.0]), "bias": jnp.array([0.0, 0.5])}
SCHEDULE = warmup_polynomial_decay(0.02, 2, 6)


def finite(seed):
    return random_like(START, seed)


def spoilt(seed, value):
    return finite(seed) | {"kernel": jnp.array([1.0, value])}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_f13_a_gradient_that_is_not_finite_changes_nothing(value):
    optimizer = skip_nonfinite(lamb(SCHEDULE, weight_decay=0.01, clip_norm=1.0))
    gradients = [finite(0), spoilt(1, value), finite(2)]
    trace, state = run(optimizer, START, gradients, jit=True)
    assert_trees_close(trace[1], trace[0], rtol=0)
    assert int(state.skipped.total) == 1
    assert int(state.skipped.in_row) == 0
    without, inner = run(
        lamb(SCHEDULE, weight_decay=0.01, clip_norm=1.0), START, [finite(0), finite(2)], jit=True
    )
    assert_trees_close(trace[2], without[1], rtol=1e-6)
    assert_trees_close(state.inner, inner, rtol=1e-6)


def test_f13_many_in_a_row_stop_the_run_by_the_name_of_the_tensor():
    optimizer = skip_nonfinite(lamb(0.01), limit=2)
    _, state = run(optimizer, START, [spoilt(0, np.nan)])
    raise_if_stuck(state, START, limit=2)
    trace, state = run(optimizer, START, [spoilt(0, np.nan), spoilt(1, np.inf), finite(2)])
    assert_trees_close(trace[-1], START, rtol=0)  # stands still, whatever comes next
    with pytest.raises(FloatingPointError, match="3 updates in a row, first in 'kernel'"):
        raise_if_stuck(state, START, limit=2)


def test_f13_large_finite_gradients_are_applied():
    """The sum of squares overflows here; no entry does."""
    optimizer = skip_nonfinite(lamb(0.01))
    gradient = {"kernel": jnp.full(2, 1e25), "bias": jnp.ones(2)}
    (after,), state = run(optimizer, START, [gradient])
    assert int(state.skipped.total) == 0
    assert np.all(np.isfinite(after["kernel"]))


def test_apply_if_finite_leaves_counts_alone():
    optimizer = optax.apply_if_finite(lamb(SCHEDULE, weight_decay=0.01), 3)
    trace, state = run(optimizer, START, [finite(0), spoilt(1, np.nan)], jit=True)
    assert_trees_close(trace[1], trace[0], rtol=0)
    counts = [int(count) for _, count in optax.tree.get_all_with_path(state.inner_state, "count")]
    assert counts == [1, 1]


@pytest.mark.parametrize("function", [lamb, lans, lars], ids=lambda f: f.__name__)
def test_accumulation_is_one_update_on_the_mean(function):
    micro = [finite(seed) for seed in range(4)]
    mean = jax.tree.map(lambda *g: sum(g) / 4, *micro)
    optimizer = function(SCHEDULE, weight_decay=0.01)
    accumulated, state = run(optax.MultiSteps(optimizer, 4), START, micro, jit=True)
    (big,), _ = run(optimizer, START, [mean], jit=True)
    assert int(state.gradient_step) == 1
    assert_trees_close(accumulated[2], START, rtol=0)
    assert_trees_close(accumulated[-1], big, rtol=1e-5)


def test_accumulation_skips_what_is_not_finite():
    optimizer = optax.MultiSteps(lamb(0.01), 2, should_skip_update_fn=optax.skip_not_finite)
    trace, state = run(optimizer, START, [finite(0), spoilt(1, np.nan), finite(2)], jit=True)
    (expected,), _ = run(
        lamb(0.01), START, [jax.tree.map(lambda a, b: (a + b) / 2, finite(0), finite(2))]
    )
    assert_trees_close(trace[-1], expected, rtol=1e-6)
    assert int(state.gradient_step) == 1


def test_exponential_moving_average_of_parameters():
    trace, _ = run(lamb(0.01), START, [finite(seed) for seed in range(3)])
    average = START
    for params in trace:
        average = optax.incremental_update(params, average, step_size=0.1)
    expected = jax.tree.map(
        lambda x, *after: 0.729 * x + 0.1 * (0.81 * after[0] + 0.9 * after[1] + after[2]),
        START,
        *trace,
    )
    assert_trees_close(average, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_f15_master_weights_take_updates_that_would_round_away(dtype):
    params = jnp.ones(8, dtype)
    gradients = [jnp.full(8, 0.5, dtype)] * 20
    alone, _ = run(lamb(1e-4), params, gradients)
    trace, state = run(with_master_weights(lamb(1e-4)), params, gradients)
    exact, _ = run(lamb(1e-4), params.astype(jnp.float32), gradients)
    np.testing.assert_array_equal(alone[-1], params)
    np.testing.assert_allclose(state.masters, exact[-1], rtol=1e-6)
    assert trace[-1].dtype == dtype
    np.testing.assert_array_equal(trace[-1], state.masters.astype(dtype))
    assert state.inner[1].moments.mu.dtype == jnp.float32


def test_f15_wide_parameters_need_no_copy():
    params = {"half": jnp.ones(4, jnp.bfloat16), "wide": jnp.arange(1.0, 5.0)}
    gradients = [jax.tree.map(jnp.ones_like, params)] * 2
    trace, state = run(with_master_weights(lamb(0.01)), params, gradients, jit=True)
    plain, _ = run(lamb(0.01), params["wide"], [g["wide"] for g in gradients])
    assert len(jax.tree.leaves(state.masters)) == 1
    assert trace[-1]["wide"].dtype == jnp.float32
    np.testing.assert_allclose(trace[-1]["wide"], plain[-1], rtol=1e-6)


OPTIMIZERS = {
    "lamb": lambda: lamb(
        SCHEDULE, weight_decay=0.01, mask=path_mask, trust_ratio_mask=path_mask, record=True
    ),
    "lans": lambda: lans(SCHEDULE, weight_decay=0.01),
    "lars": lambda: lars(SCHEDULE, weight_decay=0.01),
    "skipping": lambda: skip_nonfinite(lamb(SCHEDULE)),
    "master_weights": lambda: with_master_weights(lamb(SCHEDULE, moment_dtype=jnp.bfloat16)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_f04_state_survives_orbax(name, tmp_path):
    """After a restore into shapes alone the next update is the same to the bit, masks included."""
    params = {"norm": {"scale": jnp.ones(2)}, "dense": START}
    gradients = [random_like(params, seed) for seed in range(4)]
    optimizer = OPTIMIZERS[name]()
    whole, _ = run(optimizer, params, gradients, jit=True)
    first, state = run(optimizer, params, gradients[:2], jit=True)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", (first[-1], state))
        checkpointer.wait_until_finished()
        fresh = OPTIMIZERS[name]()
        shapes = jax.eval_shape(lambda p: (p, fresh.init(p)), params)
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes
        )
        restored, state = checkpointer.restore(tmp_path / "saved", shapes)
    rest, _ = run(fresh, restored, gradients[2:], state, jit=True)
    assert_trees_close(rest, whole[2:], rtol=0)


def test_telemetry_costs_no_second_pass_and_sees_every_tensor():
    """Norms and ratios of each layer, of tensors that do not adapt too, inside jit."""
    params = {"layers": jnp.array([[3.0, 4.0], [0.3, 0.4]]), "bias": jnp.array([0.0, 2.0])}
    mask = {"layers": True, "bias": False}
    optimizer = lamb(0.1, trust_ratio_mask=mask, stacked={"layers": 1, "bias": 0}, record=True)
    (after,), state = run(optimizer, params, [jax.tree.map(jnp.ones_like, params)], jit=True)
    seen = trust_ratios(state)
    np.testing.assert_allclose(seen.weight_norm["layers"], [5.0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(seen.update_norm["layers"], [np.sqrt(2)] * 2, rtol=1e-5)
    np.testing.assert_allclose(seen.trust_ratio["layers"] * np.sqrt(2), [5.0, 0.5], rtol=1e-5)
    np.testing.assert_allclose(seen.weight_norm["bias"], 2.0)
    assert seen.trust_ratio["bias"] == 1
    plain, _ = run(
        lamb(0.1, trust_ratio_mask=mask, stacked={"layers": 1, "bias": 0}),
        params,
        [jax.tree.map(jnp.ones_like, params)],
        jit=True,
    )
    assert_trees_close(after, plain[0], rtol=0)


def test_telemetry_that_was_not_asked_for_is_an_error():
    with pytest.raises(ValueError, match="record=True"):
        trust_ratios(lamb(0.01).init(START))
