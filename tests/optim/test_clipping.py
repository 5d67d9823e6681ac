"""Clips per tensor and per bucket: lengths, directions, types, and what passes untouched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.optim.clipping import (
    assign_buckets,
    clip_by_bucket,
    clip_by_global_norm,
    clip_per_tensor,
)


def clipped(clip, updates, params=None):
    result, _ = clip.update(updates, clip.init(updates), params)
    return result


def norm(*leaves):
    return float(np.sqrt(sum(np.sum(np.square(np.float64(leaf))) for leaf in leaves)))


CLIPS = {
    "global": clip_by_global_norm,
    "tensor": clip_per_tensor,
    "bucket": lambda max_norm: clip_by_bucket(max_norm, {"a": 0, "b": 1}),
}


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_updates_within_the_limit_pass_bit_for_bit(name, dtype):
    draw = np.random.default_rng(0).normal(size=[2, 64])
    updates = {"a": jnp.asarray(draw[0], dtype), "b": jnp.asarray(draw[1], dtype)}
    passed = jax.jit(lambda updates: clipped(CLIPS[name](20.3), updates))(updates)
    for key, leaf in updates.items():
        assert passed[key].dtype == dtype
        np.testing.assert_array_equal(passed[key], leaf)


@pytest.mark.parametrize("name", CLIPS)
def test_half_precision_norms_are_taken_in_float32(name):
    """The squares of these would be infinite and 0 in float16."""
    updates = {"a": jnp.full([512, 512], 1.0, jnp.float16), "b": jnp.full([4], 1e-4, jnp.float16)}
    shrunk = clipped(CLIPS[name](1.0), updates)
    assert shrunk["a"].dtype == jnp.float16
    expected = (0.5**0.5 if name == "bucket" else 1) / 512
    np.testing.assert_allclose(np.float32(shrunk["a"]), expected, rtol=1e-3)
    tiny = clipped(CLIPS[name](1e-5), {"a": updates["b"], "b": jnp.zeros([1], jnp.float16)})
    assert 0 < norm(tiny["a"]) < 1.05e-5


@pytest.mark.parametrize("name", CLIPS)
def test_zero_updates_stay_zero(name):
    updates = {"a": jnp.zeros([2, 2]), "b": jnp.zeros([3])}
    for leaf in jax.tree.leaves(clipped(CLIPS[name](1.0), updates)):
        np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("nan")])
def test_limit_of_zero_or_less_is_refused(name, max_norm):
    with pytest.raises(ValueError, match=r"max_norm = .*: expected more than 0"):
        CLIPS[name](max_norm)


def test_each_tensor_of_a_stack_is_clipped_on_its_own():
    layers = jnp.array([[3.0, 4.0], [0.3, 0.4], [0.0, -8.0]])
    updates = {"layers": layers, "bias": jnp.array([5.0, 12.0])}
    shrunk = clipped(clip_per_tensor(1.0, stacked={"layers": 1, "bias": 0}), updates)
    np.testing.assert_allclose(shrunk["layers"], [[0.6, 0.8], [0.3, 0.4], [0, -1]], rtol=1e-6)
    np.testing.assert_array_equal(shrunk["layers"][1], layers[1])
    np.testing.assert_allclose(shrunk["bias"], [5 / 13, 12 / 13], rtol=1e-6)
    whole = clipped(clip_per_tensor(1.0), updates)
    assert norm(whole["layers"]) == pytest.approx(1, rel=1e-6)


def test_stacked_counts_may_be_a_function_and_are_checked():
    updates = {"a": jnp.full([2, 3, 4], 2.0), "b": jnp.full([3], 2.0)}

    def rule(tree):
        return jax.tree.map(lambda x: x.ndim - 1, tree)

    shrunk = clipped(clip_per_tensor(1.0, stacked=rule), updates, updates)
    np.testing.assert_allclose(shrunk["a"], 0.5, rtol=1e-6)
    assert norm(shrunk["b"]) == pytest.approx(1, rel=1e-6)
    with pytest.raises(ValueError, match="stacked = 2 for 'b' of shape"):
        clipped(clip_per_tensor(1.0, stacked=2), updates)


def test_golden_two_buckets_against_one_global_norm():
    gradients = {"first": jnp.array([3.0]), "second": jnp.array([0.1])}
    shrunk = clipped(clip_by_bucket(1.0, {"first": 0, "second": 1}), gradients)
    assert float(shrunk["first"][0]) == pytest.approx(0.7071, abs=5e-5)
    assert shrunk["second"] == gradients["second"]
    for clip in (clip_by_global_norm(1.0), clip_by_bucket(1.0, 0), clip_by_bucket(1.0, None)):
        shrunk = clipped(clip, gradients)
        assert float(shrunk["first"][0]) == pytest.approx(0.9994, abs=5e-5)
        assert float(shrunk["second"][0]) == pytest.approx(0.0333, abs=5e-5)


def test_leaves_of_one_bucket_share_a_norm_and_the_whole_keeps_the_limit(small_params):
    """With prefixes, as a function and with the parameters passed or not: the same clip."""
    gradients = jax.tree.map(lambda x: jnp.asarray(30 * x), small_params)
    rule = {"embeddings": 1, "layers": {"up": 0, "norm": 1}}
    one = clipped(clip_by_bucket(2.0, rule), gradients)
    other = clipped(clip_by_bucket(2.0, lambda tree: rule), gradients, small_params)
    jax.tree.map(np.testing.assert_array_equal, one, other)
    up = jax.tree.leaves(one["layers"]["up"])
    rest = jax.tree.leaves((one["embeddings"], one["layers"]["norm"]))
    assert norm(*up) == pytest.approx(2**0.5, rel=1e-6)
    assert norm(*rest) == pytest.approx(2**0.5, rel=1e-6)
    assert norm(*up, *rest) <= 2 * (1 + 1e-6)
    before = jax.tree.leaves((gradients["embeddings"], gradients["layers"]["norm"]))
    ratios = [norm(x) / norm(g) for x, g in zip(rest, before, strict=True)]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_mean_over_devices_of_clipped_gradients_keeps_the_limit():
    """Eight devices' own gradients, clipped before their mean is taken."""
    gradients = np.random.default_rng(1).normal(size=[8, 2, 50]).astype(np.float32) * 9
    clip = clip_by_bucket(1.0, {"a": 0, "b": 1})

    def local(own):
        shrunk = clipped(clip, {"a": own[0], "b": own[1]})
        return jax.lax.pmean(shrunk, "device")

    mean = jax.vmap(local, axis_name="device")(gradients)
    assert norm(mean["a"][0], mean["b"][0]) <= 1
    one = clipped(clip, {"a": jnp.asarray(gradients[0, 0]), "b": jnp.asarray(gradients[0, 1])})
    assert norm(one["a"], one["b"]) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("bucket", "message"),
    [
        ({"a": 0, "b": 0.5}, r"bucket = 0\.5 for 'b': expected a whole number"),
        ({"a": -1, "b": 0}, "bucket = -1 for 'a'"),
        ({"a": True, "b": 0}, "bucket = True for 'a'"),
        ({"a": 1, "b": 2}, "bucket 0 has no leaf: expected every number from 0 to 2"),
        ({"a": 0, "b": 10**12}, "bucket 1 has no leaf"),
        ({"a": 0}, "."),  # what jax says of a tree that does not fit
    ],
)
def test_impossible_bucket_is_named(bucket, message):
    updates = {"a": jnp.ones(2), "b": jnp.ones(3)}
    with pytest.raises(ValueError, match=message):
        clipped(clip_by_bucket(1.0, bucket), updates)


def test_no_leaves_at_all():
    assert clipped(clip_by_bucket(1.0, assign_buckets), {}) == {}


def test_buckets_fill_from_the_last_leaf_on():
    shapes = [(2, 3), (100,), (1,), (4,), (), (5, 2)]
    params = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    # Bytes 24, 400, 4, 16, 4, 40; the 400 and what would overflow start anew.
    assert assign_buckets(params, max_bytes=44) == [3, 2, 1, 1, 0, 0]
    assert assign_buckets(params, max_bytes=1) == [5, 4, 3, 2, 1, 0]
    assert assign_buckets(params, max_bytes=488) == [0] * 6
    assert assign_buckets(params, max_bytes=487) == [1, 0, 0, 0, 0, 0]
    assert assign_buckets(params) == [0] * 6


def test_buckets_by_default_hold_25_mib_of_the_gradients_dtype():
    def tree(dtype):
        return [jax.ShapeDtypeStruct((25, 2**18), dtype), jax.ShapeDtypeStruct((1,), dtype)]

    assert assign_buckets(tree(jnp.float32)) == [1, 0]  # 25 MiB and 4 bytes
    assert assign_buckets(tree(jnp.bfloat16)) == [0, 0]
    assert assign_buckets(tree(jnp.float32)[:1] * 3) == [2, 1, 0]
    with pytest.raises(ValueError, match="max_bytes = 0: expected at least 1"):
        assign_buckets([], max_bytes=0)


def test_buckets_of_a_bert_are_consecutive(bert_params):
    clip = clip_by_bucket(1.0, lambda tree: assign_buckets(tree, max_bytes=2000))
    buckets = jax.tree.leaves(assign_buckets(bert_params, max_bytes=2000))
    assert buckets == sorted(buckets, reverse=True)
    assert set(buckets) == set(range(buckets[0] + 1))
    gradients = jax.tree.map(lambda x: jnp.asarray(5 * x), bert_params)
    shrunk = jax.tree.leaves(jax.jit(lambda tree: clipped(clip, tree))(gradients))
    limit = 1 / (buckets[0] + 1) ** 0.5
    for index in set(buckets):
        own = [leaf for leaf, bucket in zip(shrunk, buckets, strict=True) if bucket == index]
        assert norm(*own) <= limit * (1 + 1e-6)
