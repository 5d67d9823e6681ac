"""What goes wrong in public implementations of LAMB: numbered f01 to f18."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_lamb.optim import (
    clip_by_global_norm,
    global_norm,
    lamb,
    path_mask,
    trust_ratio,
    warmup_polynomial_decay,
    warn_of_unused,
)
from tests.trees import assert_trees_close, random_like, run

GRADIENTS = ([0.1, -0.2], [0.3, 0.1], [-0.05, 0.2])
START = [3.0, 4.0]


def test_f01_bias_left_out_of_adaptation_leaves_zero():
    bias, gradient = jnp.zeros(2), jnp.array([0.1, -0.2])
    excluded, _ = run(lamb(0.01, trust_ratio_mask=False), bias, [gradient] * 2)
    adapted, _ = run(lamb(0.01), bias, [gradient] * 2)
    np.testing.assert_allclose(excluded[1], [-0.0199996, 0.0199996], rtol=0, atol=5e-7)
    np.testing.assert_allclose(adapted[1], [-0.0101, 0.0101], rtol=0, atol=5e-6)

    excluded, _ = run(lamb(6e-3, trust_ratio_mask=False), bias, [gradient] * 100)
    adapted, _ = run(lamb(6e-3), bias, [gradient] * 100)
    np.testing.assert_allclose(jnp.abs(excluded[-1]), 0.600, rtol=0, atol=5e-4)
    np.testing.assert_allclose(jnp.abs(adapted[-1]), 0.0108, rtol=0, atol=5e-5)


def test_f06_stacked_layers_each_move_by_their_own_norm():
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 0.1, 0.01])
    params = jnp.asarray(rng.normal(size=(3, 16, 16)) * scales[:, None, None], jnp.float32)
    gradient = random_like(params, 1)
    norms = np.linalg.norm(params, axis=(1, 2))

    (declared,), _ = run(lamb(0.01, stacked=1), params, [gradient])
    moved = np.linalg.norm(declared - params, axis=(1, 2))
    np.testing.assert_allclose(moved, 0.01 * norms, rtol=1e-4)

    (single,), _ = run(lamb(0.01), params, [gradient])
    moved = np.linalg.norm(single - params, axis=(1, 2))
    assert moved[2] / (0.01 * norms[2]) > 50


def test_f06_fused_query_key_value_is_three_tensors():
    fused = random_like(jnp.zeros([2, 3, 8, 4]), 0) * jnp.array([1.0, 0.1, 0.01])[:, None, None]
    gradient = random_like(fused, 1)
    (together,), _ = run(lamb(0.01, weight_decay=0.01, stacked=2), fused, [gradient])

    def split(x):
        x = np.asarray(x)
        return [[x[layer, part] for part in range(3)] for layer in range(2)]

    (apart,), _ = run(lamb(0.01, weight_decay=0.01), split(fused), [split(gradient)])
    assert_trees_close(split(together), apart, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("leading", [3, 12, 24])
def test_f06_stacked_axes_are_never_guessed(leading):
    params = random_like(jnp.zeros([leading, 8]), 0)
    gradient = random_like(params, 1)
    ours, _ = run(lamb(0.01), params, [gradient])
    moved = jnp.linalg.norm(ours[0] - params)
    np.testing.assert_allclose(moved, 0.01 * jnp.linalg.norm(params), rtol=1e-4)


def test_f07_clip_scales_all_groups_alike():
    gradients = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([0.0, 4.0])}
    clip = clip_by_global_norm(1.0)
    clipped, _ = clip.update(gradients, clip.init(gradients))
    assert_trees_close(clipped, jax.tree.map(lambda g: g / 5, gradients), rtol=1e-6)
    within, _ = clip.update(clipped, clip.init(gradients))
    above = clip_by_global_norm(6.0)
    same, _ = above.update(gradients, above.init(gradients))
    assert_trees_close(same, gradients, rtol=0)
    assert_trees_close(within, clipped, rtol=1e-6)


def test_f07_clip_none_changes_nothing():
    gradients = [jnp.array([30.0, -40.0]), jnp.array([0.3, 0.1])]
    off, _ = run(lamb(0.01, clip_norm=None), jnp.array(START), gradients)
    far, _ = run(lamb(0.01, clip_norm=1e9), jnp.array(START), gradients)
    np.testing.assert_array_equal(off, far)


@pytest.mark.parametrize("function", [lamb, warmup_polynomial_decay, path_mask])
def test_f08_documented_defaults_are_the_signature_s(function):
    """Wherever an Args entry says "default X", X is what the signature has."""
    arguments = inspect.getdoc(function).split("Args:")[1].split("Returns:")[0]
    entries = re.split(r"\n    (?=\w+: )", arguments)
    documented = {
        entry.strip().split(":")[0]: " ".join(match[1].split())
        for entry in entries
        if (match := re.search(r"[Dd]efault\s+([\w.\"-]+[\w\"])", entry))
    }
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not parameter.empty
    }
    assert {name: value.strip('"') for name, value in documented.items()} == {
        name: str(value) for name, value in defaults.items()
    }


def test_f09_first_step_is_the_gradient_s_sign_and_large_weights_are_not_clamped():
    params = jnp.array([30.0, 40.0])  # norm 50
    (after,), _ = run(lamb(0.01), params, [jnp.array([0.1, -0.2])])
    step = 0.01 * 50 / np.sqrt(2)
    np.testing.assert_allclose(after - params, [-step, step], rtol=1e-4)


def test_f10_zero_gradient_decays_a_whole_tensor_by_lr():
    optimizer = lamb(6e-3, weight_decay=0.01)
    params = jnp.array(START)
    state = optimizer.init(params)

    @jax.jit
    def thousand(params, state):
        def step(carry, _):
            params, state = carry
            updates, state = optimizer.update(jnp.zeros(2), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), length=1000)[0]

    after, state = thousand(params, state)
    np.testing.assert_allclose(after / params, (1 - 6e-3) ** 1000, rtol=1e-4)
    np.testing.assert_allclose(after / params, 0.0024, rtol=0, atol=5e-5)
    adam = optax.tree.get(state, "ScaleByAdamState")
    np.testing.assert_array_equal([adam.mu, adam.nu], 0)


def test_f10_a_warning_names_the_tensors_that_no_gradient_reaches():
    params = {"used": jnp.array(START), "pooler": jnp.array(START)}
    gradient = {"used": jnp.array([0.0, 0.1]), "pooler": jnp.zeros(2)}
    optimizer = lamb(0.01, weight_decay=0.01)
    assert warn_of_unused(optimizer.init(params), params) == []
    _, state = run(optimizer, params, [gradient])
    with pytest.warns(UserWarning, match="no gradient has reached pooler; "):
        assert warn_of_unused(state, params) == ["pooler"]
    _, state = run(optimizer, params, [{"used": gradient["used"], "pooler": gradient["used"]}])
    assert warn_of_unused(state, params) == []
    with pytest.raises(ValueError, match="no moments"):
        warn_of_unused(clip_by_global_norm(1.0).init(params), params)


def test_f10_unused_tensor_stays_where_its_mask_says_so():
    params = {"used": jnp.array(START), "pooler": jnp.array(START)}
    gradient = {"used": jnp.array(GRADIENTS[0]), "pooler": jnp.zeros(2)}
    mask = {"used": True, "pooler": False}
    (after,), _ = run(lamb(0.01, weight_decay=0.01, mask=mask), params, [gradient])
    np.testing.assert_array_equal(after["pooler"], params["pooler"])
    assert not np.array_equal(after["used"], params["used"])


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.02},
        {"b1": 0.8},
        {"b2": 0.9},
        {"eps": 1e-2},
        {"eps_root": 1e-3},
        {"weight_decay": 0.1},
        {"mask": False},
        {"trust_ratio_mask": False},
        {"stacked": 1},
        {"clip_norm": 0.1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_f11_every_argument_changes_the_update(change):
    params = jnp.array([[3.0, 4.0], [0.3, 0.4]])
    gradients = [jnp.array([g, g[::-1]]) for g in GRADIENTS]
    base = {"learning_rate": 0.01, "weight_decay": 0.01}
    before, _ = run(lamb(**base), params, gradients)
    after, _ = run(lamb(**(base | change)), params, gradients)
    assert float(jnp.max(jnp.abs(before[-1] - after[-1]))) > 1e-5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", -1e-3),
        ("learning_rate", float("nan")),
        ("b1", 1.0),
        ("b1", -0.1),
        ("b2", 1.0),
        ("b2", -0.5),
        ("b2", float("nan")),
        ("eps", 0.0),
        ("eps", -1e-6),
        ("eps_root", -1e-6),
        ("weight_decay", -0.01),
        ("clip_norm", 0.0),
        ("clip_norm", -1.0),
    ],
)
def test_f12_impossible_number_is_named(name, value):
    arguments = {"learning_rate": 0.01} | {name: value}
    with pytest.raises(ValueError, match=re.escape(f"{name} = {value}: expected")):
        lamb(**arguments)


def test_f14_learning_rate_is_a_function_of_applied_updates():
    """A state written down after update 3 continues with the same rates and numbers."""
    schedule = warmup_polynomial_decay(0.01, 2, 6)
    gradients = [jnp.array(GRADIENTS[i % 3]) for i in range(6)]
    optimizer = lamb(schedule, weight_decay=0.01, trust_ratio_mask=False)
    whole, _ = run(optimizer, jnp.array(START), gradients)

    first, state = run(optimizer, jnp.array(START), gradients[:3])
    kept = jax.tree.map(np.asarray, (first[-1], state))
    optimizer = lamb(schedule, weight_decay=0.01, trust_ratio_mask=False)
    params, state = jax.tree.map(jnp.asarray, kept)
    rest, state = run(optimizer, params, gradients[3:], state)
    np.testing.assert_array_equal(rest, whole[3:])
    assert [int(count) for _, count in optax.tree.get_all_with_path(state, "count")] == [6, 6]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("value", [1.0, 1e-4])
def test_f15_half_precision_norms_are_taken_in_float32(dtype, value):
    """In float16 the squares' sum of 512 x 512 ones is infinite, the square of 1e-4 is 0."""
    x = jnp.full([512, 512], value, dtype)
    true = 512 * float(x[0, 0])
    norm = global_norm({"x": x})
    assert norm.dtype == jnp.float32
    assert float(norm) == pytest.approx(true, rel=1e-5)
    ratio = trust_ratio(x, jnp.full([512, 512], 0.5, dtype))
    assert ratio.dtype == jnp.float32
    assert float(ratio[0, 0]) == pytest.approx(true / 256, rel=1e-5)

    clip = clip_by_global_norm(true / 2)
    clipped, _ = clip.update(x, clip.init(x))
    assert clipped.dtype == dtype
    np.testing.assert_allclose(
        np.float32(clipped), np.float32(x) / 2, rtol=float(jnp.finfo(dtype).eps)
    )


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_f15_update_of_half_precision_params_keeps_dtype_and_norm(dtype):
    params = jnp.ones([512, 512], dtype)
    optimizer = lamb(0.0625)
    state = optimizer.init(params)
    updates, _ = optimizer.update(jnp.full_like(params, 0.5), state, params)
    assert updates.dtype == dtype
    np.testing.assert_allclose(np.float32(updates), -0.0625, rtol=0.02)


def test_f16_update_does_not_depend_on_the_gradient_s_scale():
    """While |g| is far above eps; below it the update changes, hence mean gradients."""
    with jax.enable_x64(True):
        params = jnp.array(START)
        gradients = [1e8 * jnp.array(g) for g in GRADIENTS]

        def after(scale):
            trace, _ = run(lamb(0.01, weight_decay=0.01), params, [scale * g for g in gradients])
            return trace[-1] - params

        for scale in (1e-8, 1e-4, 1e-1, 1e3):
            np.testing.assert_allclose(after(scale), after(1.0), rtol=1e-4)
        assert float(jnp.max(jnp.abs(after(1e-12) / after(1.0) - 1))) > 1e-2


def test_f17_clipping_comes_after_the_mean():
    parts = [jnp.array([3.0, 4.0]), jnp.array([0.0, 0.1])]
    clip = clip_by_global_norm(1.0)

    def clipped(g):
        return clip.update(g, clip.init(g))[0]

    before = sum(map(clipped, parts)) / 2
    after = clipped(sum(parts) / 2)
    np.testing.assert_allclose(before, [0.30, 0.45], rtol=1e-6)
    np.testing.assert_allclose(after, [0.5905, 0.8070], rtol=0, atol=5e-5)

    optimizer = lamb(0.01, weight_decay=0.01, clip_norm=1.0)
    accumulated, _ = run(optax.MultiSteps(optimizer, 2), jnp.array(START), parts, jit=True)
    big_batch, _ = run(optimizer, jnp.array(START), [sum(parts) / 2])
    np.testing.assert_allclose(accumulated[-1], big_batch[-1], rtol=1e-6)
    _, state = run(optimizer, jnp.array(START), [sum(parts) / 2])
    mu = optax.tree.get(state, "mu")
    np.testing.assert_allclose(mu, 0.1 * after, rtol=1e-6)


def test_f18_rows_that_never_occur_keep_zero_moments():
    params = random_like(jnp.zeros([6, 4]), 0)
    gradients = [random_like(params, seed).at[3:].set(0.0) for seed in (1, 2, 3)]
    _, state = run(lamb(0.01, weight_decay=0.01, clip_norm=1.0), params, gradients)
    adam = optax.tree.get(state, "ScaleByAdamState")
    for moment in (adam.mu, adam.nu):
        np.testing.assert_array_equal(moment[3:], 0)
        assert bool(jnp.all(moment[:3] != 0))
