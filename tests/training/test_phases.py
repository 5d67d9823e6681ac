"""Where steps lie, what the learning rate is, and what one phase hands to the next."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_lamb import model
from bert_lamb.config import ModelConfig, OptimizerConfig, PhaseConfig
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
    shapes = parameter_shapes(ModelConfig(vocab_size=50, num_layers=1, hidden_size=8, num_heads=2,
                                          intermediate_size=16))  # fmt: skip
    return shapes | {"pooler": {kind: jax.ShapeDtypeStruct((8,), jnp.float32)}}
