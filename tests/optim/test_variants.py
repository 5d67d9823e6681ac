"""Every optimizer and variant against its NumPy twin on random trees, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bert_lamb.optim import adamw, lamb, lans, lars
from tests.reference import large_batch as twin
from tests.trees import assert_trees_close, run

STEPS = 50
NAMES = ("plain", "fixed", "no_decay")
# Ours, its options; the twin, its options.
PAIRS = {
    "lamb": (lamb, {}, twin.Lamb, {}),
    "v3": (lamb, {"variant": "v3"}, twin.Lamb, {"bias_correction": False}),
    "lambc": (lamb, {"variant": "lambc"}, twin.Lamb, {"ratio_bounds": (0.0, 1.0)}),
    "bounded": (lamb, {"variant": "bounded"}, twin.Lamb, {"ratio_bounds": (0.01, 10.0)}),
    "bounded_by_user": (
        lamb,
        {"variant": "bounded", "ratio_bounds": (0.5, 2.0)},
        twin.Lamb,
        {"ratio_bounds": (0.5, 2.0)},
    ),
    "nvlamb": (lamb, {"variant": "nvlamb"}, twin.Lamb, {"clip_norm": 1.0, "adapts": NAMES}),
    "apex": (
        lamb,
        {"variant": "apex"},
        twin.Lamb,
        {"clip_norm": 1.0, "adapts": ("plain", "fixed")},
    ),
    "n_lamb": (lamb, {"nesterov": "first"}, twin.Lamb, {"nesterov": "first"}),
    "nn_lamb": (lamb, {"nesterov": "both"}, twin.Lamb, {"nesterov": "both"}),
    "phi": (lamb, {"phi_bounds": (0.5, 2.0)}, twin.Lamb, {"phi_bounds": (0.5, 2.0)}),
    "pre_normalized": (lamb, {"pre_normalize": True}, twin.Lamb, {"pre_normalize": True}),
    "clipped": (lamb, {"clip_norm": 0.1}, twin.Lamb, {"clip_norm": 0.1}),
    "adamw": (adamw, {"clip_norm": 1.0}, twin.AdamW, {"clip_norm": 1.0}),
    "adamw_biased": (adamw, {"bias_correction": False}, twin.AdamW, {"bias_correction": False}),
    "lars": (lars, {}, twin.Lars, {}),
    "lans": (lans, {}, twin.Lans, {}),
}
OWN_ADAPTATION = ("nvlamb", "apex", "adamw", "adamw_biased")


@st.composite
def problems(draw):
    """Shapes, stacked axes, scales of weights and gradients, and tensors of zeros."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    return {
        "shape": shape,
        "stacked": draw(st.integers(0, len(shape) - 1)),
        "weight_scale": 10.0 ** draw(st.integers(-8, 6)),
        "gradient_scale": 10.0 ** draw(st.integers(-8, 6)),
        "zeros": draw(st.sampled_from(["none", "weights", "gradients"])),
        "seed": draw(st.integers(0, 2**31)),
    }


@pytest.mark.parametrize("name", PAIRS)
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(problem=problems())
@example(
    {
        "shape": (3, 2),
        "stacked": 1,
        "weight_scale": 1.0,
        "gradient_scale": 1.0,
        "zeros": "weights",
        "seed": 0,
    }
)
def test_equals_the_numpy_twin_over_50_updates(name, problem):
    function, options, reference, reference_options = PAIRS[name]
    rng = np.random.default_rng(problem["seed"])
    shape = problem["shape"]
    params = {key: rng.normal(size=shape) * problem["weight_scale"] for key in NAMES}
    gradients = [
        {key: rng.normal(size=shape) * problem["gradient_scale"] for key in NAMES}
        for _ in range(STEPS)
    ]
    if problem["zeros"] == "weights":
        params["plain"] = np.zeros(shape)
    if problem["zeros"] == "gradients":
        gradients = [{**g, "plain": np.zeros(shape)} for g in gradients]

    decays = {"plain": True, "fixed": True, "no_decay": False}
    masks = {"mask": decays}
    twin_masks = {"decays": ("plain", "fixed"), "stacked": dict.fromkeys(NAMES, problem["stacked"])}
    if name not in OWN_ADAPTATION:
        masks["trust_ratio_mask"] = {"plain": True, "fixed": False, "no_decay": True}
        twin_masks["adapts"] = ("plain", "no_decay")
    if function is not adamw:
        masks["stacked"] = problem["stacked"]
    with jax.enable_x64(True):
        trace, _ = run(
            function(0.01, weight_decay=0.01, **masks, **options),
            jax.tree.map(jnp.asarray, params),
            jax.tree.map(jnp.asarray, gradients),
            jit=True,
        )
        trace = jax.tree.map(np.asarray, trace)
    other = reference(0.01, weight_decay=0.01, **twin_masks, **reference_options)
    expected = params
    for gradient, actual in zip(gradients, trace, strict=True):
        expected = other.step(expected, gradient)
        largest = max(np.abs(x).max() for x in expected.values())
        assert_trees_close(actual, expected, rtol=1e-9, atol=1e-12 * largest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "v4"}, "variant = 'v4': expected one of v5, v3, nvlamb"),
        ({"ratio_bounds": (0.1, 1.0)}, "ratio_bounds with variant = 'v5'"),
        ({"variant": "bounded", "ratio_bounds": (2.0, 1.0)}, r"ratio_bounds = \(2.0, 1.0\)"),
        ({"phi_bounds": (0.1,)}, r"phi_bounds = \(0.1,\): expected two numbers"),
        ({"phi_bounds": (-1.0, 1.0)}, "phi_bounds"),
        ({"variant": "nvlamb", "trust_ratio_mask": True}, "adapts every tensor"),
        ({"variant": "apex", "trust_ratio_mask": True}, "adapts what decays"),
        ({"pre_normalize": True, "clip_norm": 1.0}, "pre_normalize with clip_norm = 1.0"),
        ({"variant": "nvlamb", "pre_normalize": True}, "pre_normalize with clip_norm = 1.0"),
        ({"nesterov": "second"}, "nesterov = 'second': expected one of none, first, both"),
        ({"norm": jnp.linalg.norm, "specs": jax.sharding.PartitionSpec()}, "norm with specs"),
    ],
)
def test_f11_impossible_combination_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        lamb(0.01, **arguments)


@pytest.mark.parametrize("function", [adamw, lans, lars], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("name", "value"), [("learning_rate", -1.0), ("b1", 1.0), ("weight_decay", -0.01)]
)
def test_f12_impossible_number_is_named_by_every_optimizer(function, name, value):
    with pytest.raises(ValueError, match=f"{name} = {value}: expected"):
        function(**({"learning_rate": 0.01} | {name: value}))


def test_norm_can_be_chosen():
    def largest(x, axes):
        return jnp.max(jnp.abs(x), axis=axes, keepdims=True)

    params = jnp.array([[3.0, -4.0], [0.3, 0.4]])
    (after,), _ = run(lamb(0.01, norm=largest, stacked=1), params, [jnp.ones([2, 2])])
    np.testing.assert_allclose(after - params, [[-0.04, -0.04], [-0.004, -0.004]], rtol=1e-4)


@pytest.mark.parametrize("function", [adamw, lamb, lans], ids=lambda f: f.__name__)
def test_moment_dtype(function):
    params = {"x": jnp.array([3.0, 4.0])}
    gradients = [{"x": jnp.array(g)} for g in ([0.1, -0.2], [0.3, 0.1])]
    exact, _ = run(function(0.01), params, gradients)
    rounded, state = run(function(0.01, moment_dtype=jnp.bfloat16), params, gradients)
    moments = [x.dtype for x in jax.tree.leaves(state) if x.ndim]
    assert moments == [jnp.bfloat16] * 2
    assert_trees_close(rounded, exact, rtol=1e-3)
    assert not np.array_equal(rounded[-1]["x"], exact[-1]["x"])
