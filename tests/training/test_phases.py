"""Where steps lie, what the learning rate is, and what one phase hands to the next."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_lamb import model, recipes
from bert_lamb.config import ModelConfig, OptimizerConfig, PhaseConfig
from bert_lamb.model import pretraining
from bert_lamb.training import phases
from bert_lamb.training.start import parameter_shapes
from tests.quick import jit

RECIPE = (
    PhaseConfig(steps=7037, peak_lr=6e-3, warmup_steps=2000, decay_power=0.5,
                decay_form="from_zero"),
    PhaseConfig(steps=1562, peak_lr=4e-3, warmup_steps=200, decay_power=0.5,
                decay_form="from_zero"),
)  # fmt: skip
PARAMS = {"dense": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}}


def test_locate_and_first_step():
    assert phases.locate(RECIPE, 0) == (0, 0)
    assert phases.locate(RECIPE, 7036) == (0, 7036)
    assert phases.locate(RECIPE, 7037) == (1, 0)
    assert phases.locate(RECIPE, 8598) == (1, 1561)
    assert phases.locate(RECIPE, 8599) == (2, 0)
    assert [phases.first_step(RECIPE, i) for i in range(3)] == [0, 7037, 8599]


@pytest.mark.parametrize(("phase", "after_warmup"), [(0, 5.076e-3), (1, 3.734e-3)])
def test_p46_each_phase_has_its_own_step_origin(phase, after_warmup):
    spec = RECIPE[phase]
    rates = phases.learning_rates(spec)
    assert rates.first == pytest.approx(spec.peak_lr / spec.warmup_steps, rel=1e-6)
    assert rates.peak == pytest.approx(spec.peak_lr, rel=1e-7)
    assert 0 < rates.last < 0.03 * spec.peak_lr
    rate = phases.schedule(spec)
    assert float(rate(spec.warmup_steps)) == pytest.approx(after_warmup, rel=1e-3)
    assert float(rate(spec.steps)) == 0


def test_p46_small_run_from_the_case():
    second = PhaseConfig(steps=5, peak_lr=1e-3, warmup_steps=2)
    rates = phases.learning_rates(second)
    assert rates.first > 0
    assert rates.peak == pytest.approx(1e-3)
    assert float(phases.schedule(second)(5)) == 0


@pytest.mark.parametrize("batch", recipes.MLPERF)
def test_the_rates_of_mlperf_follow_its_formula(batch):
    """Facts of its reference, in update s = count + 1 and in float64."""
    peak, *_, warmup, start, total = recipes.MLPERF[batch]
    phase = PhaseConfig(peak_lr=peak, warmup_steps=warmup, warmup_start=start, steps=total,
                        decay_form="mlperf")  # fmt: skip
    counts = np.linspace(0, total - 1, 512).round().astype(int)
    expected = [
        (step - start) / warmup * peak if step - start < warmup else peak * (1 - step / total)
        for step in counts + 1
    ]
    np.testing.assert_allclose(phases.schedule(phase)(counts), expected, rtol=1e-6, atol=1e-12)
    rates = phases.learning_rates(phase)
    assert rates.first == pytest.approx(expected[0], rel=1e-6)
    assert rates.peak == pytest.approx(max(expected), rel=3e-3)  # between two of the counts
    assert rates.last == 0


@pytest.mark.parametrize(
    "phase",
    [
        PhaseConfig(steps=30, warmup_steps=30),
        PhaseConfig(steps=30, warmup_steps=0),
        PhaseConfig(steps=30, warmup_steps=7, constant_steps=9),
        PhaseConfig(steps=30, warmup_steps=7, decay_form="from_zero"),
        PhaseConfig(steps=10, warmup_steps=17, schedule_steps=30, schedule_from=5),
        PhaseConfig(steps=10, warmup_steps=7, schedule_steps=30, schedule_from=15),
        PhaseConfig(steps=10, warmup_steps=17, schedule_steps=30),
        *(
            PhaseConfig(steps=30, warmup_steps=warmup, warmup_start=-9, decay_form="mlperf")
            for warmup in (5, 12, 20, 25, 35)
        ),
    ],
)
def test_the_peak_is_the_largest_rate_of_the_phase(phase):
    rates = phases.schedule(phase)(np.arange(30))[: phase.steps]
    assert phases.learning_rates(phase).peak == float(rates.max())


def test_a_constant_part_lies_between_warm_up_and_decay():
    phase = PhaseConfig(peak_lr=1.0, warmup_steps=2, constant_steps=2, steps=7)
    rates = [float(phases.schedule(phase)(count)) for count in range(8)]
    assert rates == [0.5, 1, 1, 1, 0.75, 0.5, 0.25, 0]


@pytest.mark.parametrize("form", ["continuous", "from_zero", "mlperf"])
def test_a_schedule_over_two_phases_is_that_of_one(form):
    whole = PhaseConfig(peak_lr=1.0, warmup_steps=4, steps=20, decay_form=form)
    first = dataclasses.replace(whole, steps=12, schedule_steps=20)
    second = dataclasses.replace(whole, steps=8, schedule_steps=20, schedule_from=12)
    ours = [float(phases.schedule(part)(i)) for part in (first, second) for i in range(part.steps)]
    assert ours == [float(phases.schedule(whole)(count)) for count in range(20)]
    assert phases.learning_rates(second).peak == ours[12]  # the rest of a decay


def _after_updates(carry: str) -> tuple[optax.OptState, optax.OptState]:
    config = OptimizerConfig(exclude=(".*/bias",))
    first = PhaseConfig(steps=10, warmup_steps=2)
    optimizer = phases.make_optimizer(config, first, PARAMS)
    state = optimizer.init(PARAMS)
    for _ in range(7):
        _, state = optimizer.update(jax.tree.map(jnp.ones_like, PARAMS), state, PARAMS)
    second = phases.make_optimizer(config, dataclasses.replace(first, peak_lr=1.0), PARAMS)
    return state, phases.hand_over(carry, state, second.init(PARAMS))


def _moments(state: optax.OptState) -> optax.ScaleByAdamState:
    return optax.tree.get(state, "ScaleByAdamState")


def test_p47_carrying_weights_alone_starts_moments_and_rate_anew():
    _, new = _after_updates("weights")
    assert int(phases.schedule_count(new)) == 0
    assert int(_moments(new).count) == 0
    assert not np.any(_moments(new).mu["dense"]["kernel"])


def test_p47_carrying_moments_keeps_the_count_of_their_bias_correction():
    old, new = _after_updates("weights_and_moments")
    assert int(phases.schedule_count(new)) == 0
    assert int(_moments(new).count) == 7
    np.testing.assert_array_equal(
        _moments(new).nu["dense"]["kernel"], _moments(old).nu["dense"]["kernel"]
    )


def test_p55_biases_and_norms_neither_decay_nor_adapt_and_the_rest_does():
    config = ModelConfig(vocab_size=50, num_layers=2, hidden_size=8, num_heads=2,
                         intermediate_size=16, max_positions=16)  # fmt: skip
    params = jit(lambda key: model.init(config, key))(jax.random.key(0))
    optimizer = phases.make_optimizer(OptimizerConfig(), PhaseConfig(), params)
    zero = jax.tree.map(np.zeros_like, params)
    updates, _ = jit(lambda p: optimizer.update(zero, optimizer.init(p), p))(params)
    for path, update in jax.tree_util.tree_leaves_with_path(updates):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        excluded = name.endswith("/bias") or name.endswith("/scale")
        assert bool(jnp.any(update != 0)) != excluded, name


def test_p55_a_parameter_of_an_unknown_kind_is_an_error():
    shapes = parameter_shapes_with("gamma")
    with pytest.raises(ValueError, match="parameter pooler/gamma: not a kernel, embedding"):
        phases.make_optimizer(OptimizerConfig(), PhaseConfig(), shapes)


def parameter_shapes_with(kind: str) -> dict:
    small = ModelConfig(
        vocab_size=50, num_layers=1, hidden_size=8, num_heads=2, intermediate_size=16
    )
    shapes = parameter_shapes(pretraining(small))
    return shapes | {"pooler": {kind: jax.ShapeDtypeStruct((8,), jnp.float32)}}
