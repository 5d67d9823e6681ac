"""The optimizers that a configuration can name: each trains, resumes, hands over, runs sharded."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from bert_lamb import optim
from bert_lamb.config import (
    OptimizerConfig,
    ParallelConfig,
    PhaseConfig,
    PretrainConfig,
    from_dict,
)
from bert_lamb.parallel.batches import put_batch
from bert_lamb.training import phases
from bert_lamb.training.pretraining import pretrain
from bert_lamb.training.state import TrainState
from tests.quick import jit
from tests.steps import Setting, assert_close, batch, compiled

NAMES = ("lamb", "lars", "lans", "adamw")
PARAMS = {
    "dense": {
        "kernel": jnp.array([[0.5, -1.0], [2.0, 0.25], [1.5, -0.5]]),
        "bias": jnp.array([0.5, 3.0]),
    }
}
GRADIENTS = [
    {"dense": {"kernel": jnp.full((3, 2), 2.0).at[0, 0].set(-3), "bias": jnp.array([1.0, -2.0])}},
    {"dense": {"kernel": jnp.full((3, 2), 0.1).at[1, 1].set(0.7), "bias": jnp.array([0.3, 0.1])}},
]
PLAIN = {"exclude": (".*/bias",)}
PHASE = PhaseConfig(steps=10, warmup_steps=1, peak_lr=0.1)


def _after_updates(config: OptimizerConfig) -> dict[str, Any]:
    optimizer = phases.make_optimizer(config, PHASE, PARAMS)
    params, state = PARAMS, optimizer.init(PARAMS)
    for gradient in GRADIENTS:
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params


# Settings of each optimizer that differ from the default in one key, but for what that key needs.
CHANGES = {
    "lamb": (
        {"b1": 0.5}, {"b2": 0.9}, {"eps": 0.1}, {"weight_decay": 0.5}, {"clip_norm": None},
        {"exclude": (".*/kernel",)}, {"moment_dtype": "bfloat16"}, {"variant": "v3"},
        {"variant": "nvlamb"}, {"variant": "lambc"},
        {"variant": "bounded", "ratio_bounds": (0.0, 0.02)}, {"nesterov": "first"},
        {"nesterov": "both"}, {"pre_normalize": True, "clip_norm": None},
        {"phi_bounds": (0.0, 0.5)}, {"variant": "apex", "weight_decay": 0.0},
    ),
    "lars": (
        {"b1": 0.5}, {"weight_decay": 0.5}, {"clip_norm": None}, {"exclude": (".*/kernel",)},
        {"phi_bounds": (0.0, 0.5)},
    ),
    "lans": (
        {"b1": 0.5}, {"b2": 0.9}, {"eps": 0.1}, {"weight_decay": 0.5},
        {"exclude": (".*/kernel",)}, {"moment_dtype": "bfloat16"}, {"phi_bounds": (0.0, 0.5)},
    ),
    "adamw": (
        {"b1": 0.5}, {"b2": 0.9}, {"eps": 0.1}, {"weight_decay": 0.5}, {"clip_norm": None},
        {"exclude": (".*/kernel",)}, {"moment_dtype": "bfloat16"}, {"bias_correction": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_key_that_an_optimizer_takes_changes_its_update(name):
    seen = {"default": _after_updates(OptimizerConfig(name=name, **PLAIN))}
    for change in CHANGES[name]:
        config = OptimizerConfig(**({"name": name} | PLAIN | change))
        seen[str(change)] = _after_updates(config)
    leaves = {key: np.concatenate([x.ravel() for x in jax.tree.leaves(p)])
              for key, p in seen.items()}  # fmt: skip
    for key, numbers in leaves.items():
        same = [other for other, theirs in leaves.items() if np.array_equal(numbers, theirs)]
        assert same == [key]


def test_apex_adapts_what_decays_as_the_default_does_where_both_are_the_matrices():
    """The two differ in the limit on the gradient alone, which is 1 in both here."""
    ours, theirs = (
        _after_updates(OptimizerConfig(variant=variant, **PLAIN)) for variant in ("v5", "apex")
    )
    assert_close(ours, theirs, 1e-7)


@pytest.mark.parametrize(
    ("values", "decays", "adapts"),
    [
        ({}, (False, True), (False, True)),
        ({"name": "lars"}, (False, True), (False, True)),
        ({"name": "adamw"}, (False, True), (False, False)),
        ({"variant": "nvlamb"}, (False, True), (True, True)),
        ({"variant": "apex"}, (False, True), (False, True)),
        ({"variant": "apex", "weight_decay": 0.0}, (False, False), (False, False)),
        ({"weight_decay": 0.0}, (False, False), (False, True)),
    ],
)  # fmt: skip
def test_masks_say_what_decays_and_what_adapts(values, decays, adapts):
    """In the order bias, kernel; and the recorded ratios agree with them."""
    config = OptimizerConfig(**PLAIN, **values)
    shown = phases.masks(config, PARAMS)
    assert tuple(tuple(jax.tree.leaves(mask)) for mask in shown) == (decays, adapts)
    optimizer = phases.make_optimizer(config, PHASE, PARAMS)
    _, state = optimizer.update(GRADIENTS[0], optimizer.init(PARAMS), PARAMS)
    recorded = optax.tree.get(state, "TrustRatioState")
    assert (recorded is None) == (config.name == "adamw")
    if recorded is not None:
        ratios = jax.tree.leaves(recorded.trust_ratio)
        assert tuple(float(ratio) != 1 for ratio in ratios) == adapts


@pytest.mark.parametrize("name", NAMES)
def test_p47_moments_and_their_count_are_handed_over_and_the_schedule_restarts(name):
    config = OptimizerConfig(name=name, **PLAIN)
    optimizer = phases.make_optimizer(config, PHASE, PARAMS)
    old = optimizer.init(PARAMS)
    for gradient in GRADIENTS:
        _, old = optimizer.update(gradient, old, PARAMS)
    new = phases.make_optimizer(config, dataclasses.replace(PHASE, steps=5), PARAMS).init(PARAMS)
    kind = "EmaState" if name == "lars" else "ScaleByAdamState"

    carried = phases.hand_over("weights_and_moments", old, new)
    assert jax.tree.structure(carried) == jax.tree.structure(new)
    assert_close(optax.tree.get(carried, kind), optax.tree.get(old, kind), 0)
    assert int(optax.tree.get(carried, kind).count) == 2
    assert int(phases.schedule_count(carried)) == 0
    fresh = phases.hand_over("weights", old, new)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(optax.tree.get(fresh, kind)))


def test_bf16_moments_are_stored_and_the_parameters_stay_float32():
    optimizer = phases.make_optimizer(
        OptimizerConfig(moment_dtype="bfloat16", **PLAIN), PHASE, PARAMS
    )
    state = optimizer.init(PARAMS)
    updates, state = optimizer.update(GRADIENTS[0], state, PARAMS)
    moments = optax.tree.get(state, "ScaleByAdamState")
    assert {x.dtype for x in jax.tree.leaves((moments.mu, moments.nu))} == {jnp.dtype("bfloat16")}
    assert {x.dtype for x in jax.tree.leaves(updates)} == {np.dtype("float32")}


OPTIMIZERS = {
    "lars": OptimizerConfig(name="lars", **PLAIN),
    "lans": OptimizerConfig(name="lans", **PLAIN),
    "adamw": OptimizerConfig(name="adamw", bias_correction=False, **PLAIN),
    "nvlamb": OptimizerConfig(variant="nvlamb", nesterov="first", **PLAIN),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_cut_over_8_devices_an_optimizer_gives_the_same_update(name):
    """Stacked layers and a bias, two updates inside of shard_map against whole arrays."""
    keys = iter(jax.random.split(jax.random.key(0), 4))
    params = {
        "layers": {"kernel": jax.random.normal(next(keys), (2, 8, 4)), "bias": jnp.ones((2, 4))},
        "pooler": {"kernel": jax.random.normal(next(keys), (16, 4))},
    }
    specs = {"layers": {"kernel": P(None, "fsdp"), "bias": P()}, "pooler": {"kernel": P("fsdp")}}
    whole = phases.make_optimizer(OPTIMIZERS[name], PHASE, params)
    cut = phases.make_optimizer(OPTIMIZERS[name], PHASE, params, specs)
    state = whole.init(params)
    lies = optim.state_specs(state, params, specs)
    mesh = jax.make_mesh((8,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    sharded = jit(
        jax.shard_map(cut.update, mesh=mesh, in_specs=(specs, lies, specs), out_specs=(specs, lies))
    )
    ours = theirs = (params, state)
    for key in keys:
        gradients = jax.tree.map(lambda x, k=key: jax.random.normal(k, x.shape), params)
        ours = _updated(sharded, gradients, *ours)
        theirs = _updated(jit(whole.update), gradients, *theirs)
        assert_close(ours, theirs, 1e-6)


def _updated(update: Callable, gradients: Any, params: Any, state: Any) -> tuple[Any, Any]:
    updates, state = update(gradients, state, params)
    return optax.apply_updates(params, updates), state


def _steps(optimizer: OptimizerConfig, parallel: ParallelConfig, devices: int) -> TrainState:
    setting = Setting(parallel, devices=devices, optimizer=optimizer)
    step, state, layout = compiled(setting)
    for seed in range(2):
        state, report = step(state, put_batch(batch(seed), layout.mesh))
        assert float(report["learning_rate"]) > 0
    return state


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_cut_over_8_devices_a_model_takes_the_same_steps(name):
    """Parameters, moments, counts and recorded ratios; the moments are cut like the parameters."""
    optimizer = dataclasses.replace(OPTIMIZERS[name], exclude=OptimizerConfig().exclude)
    cut = _steps(optimizer, ParallelConfig(fsdp=8), 8)
    alone = _steps(optimizer, ParallelConfig(), 1)
    assert_close(_without_noise(cut), _without_noise(alone), 1e-5)
    kind = "EmaState" if name == "lars" else "ScaleByAdamState"
    (_, *trees) = optax.tree.get(cut.opt_state, kind)
    for tree in trees:
        kernel = tree["layers"]["mlp"]["up"]["kernel"]
        assert kernel.addressable_shards[0].data.size * 8 == kernel.size


def _without_noise(state: TrainState) -> TrainState:
    """Leaves out the keys' bias: attention does not depend on it, so its gradient is rounding.

    LANS divides that by its norm, and trust ratios by theirs.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, x: None if "['key']['bias']" in jax.tree_util.keystr(path) else x, state
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lars", "lans", "adamw"])
def test_p39_an_optimizer_resumes_to_the_same_bits_in_either_phase(name, small, tmp_path):
    """Ten steps with dropout, moments carried over; then again from steps 3 and 8."""
    phase_values = [values | {"heldout": ""} for values in small["phases"]]
    values = small | {"phases": phase_values, "optimizer": {"name": name}}
    values["checkpoint"] = {"every_steps": 1, "keep": 10}
    config = from_dict(PretrainConfig, values)
    straight = _run(config, tmp_path)
    for last in (8, 3):
        for folder in (tmp_path / "checkpoints").iterdir():
            if int(folder.name) > last:
                shutil.rmtree(folder)
        assert_close(_run(config, tmp_path), straight, 0)


def _run(config: PretrainConfig, workdir: Path) -> TrainState:
    outcome = pretrain(config, workdir, jax.devices()[:1])
    assert (outcome.step, outcome.stopped_by) == (config.total_steps, None)
    return outcome.state
