"""The pattern of dropout is a function of the step, the place and the row, not of the machine."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_lamb.model import apply, init, pretraining_sums
from bert_lamb.model.dropout import Noise, draw_mask, dropout, effective_rate
from tests.quick import jit

KEY = jax.random.key(3)
GENERATORS = ["threefry", "rbg"]


def noise(rows, generator="threefry", key=KEY):
    return Noise(key, jnp.asarray(rows, jnp.int32), generator)


def drawn(config):
    return jit(lambda: init(config, KEY))()


@pytest.fixture
def mesh():
    return jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))


def kept(source, shape, rate=0.5):
    return np.asarray(draw_mask(shape, rate, source).kept())


def test_rate_is_a_multiple_of_a_power_of_two():
    assert effective_rate(0.1) == 26 / 256
    assert effective_rate(0.0) == 0
    assert effective_rate(0.999) == 255 / 256
    assert effective_rate(0.1, bits=32) == round(0.1 * 2**32) / 2**32


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("generator", GENERATORS)
def test_share_kept_and_expectation(generator, bits):
    source = dataclasses.replace(noise(range(16), generator), bits=bits)
    x = jnp.full((16, 64, 64), 2.0)
    y = np.asarray(dropout(x, 0.1, source))
    rate = effective_rate(0.1, bits)
    assert_share(y != 0, 1 - rate)
    np.testing.assert_allclose(y[y != 0], 2 / (1 - rate), rtol=1e-6)


def assert_share(kept, expected):
    deviation = np.sqrt(expected * (1 - expected) / kept.size)
    assert abs(kept.mean() - expected) < 4 * deviation


@pytest.mark.parametrize("rate", [1 / 256, 0.1, 0.25, 0.5, 0.7, 255 / 256])
@pytest.mark.parametrize("rows", [1, 8, 20, 32, 70])
def test_hardware_masks_of_any_number_of_rows_keep_their_share(rows, rate):
    mask = kept(noise(range(rows), "rbg"), (rows, 128, 64), rate)
    assert mask.shape == (rows, 128, 64)
    assert_share(mask, 1 - effective_rate(rate))
    if 0.1 <= rate <= 0.7:  # two rows seldom drop the same element by chance otherwise
        agreement = np.corrcoef(mask.reshape(rows, -1)) - np.eye(rows)
        assert np.abs(agreement).max() < 6 / np.sqrt(mask[0].size)


def test_bytes_of_threefry_are_equally_likely():
    # Chi squared with 255 degrees of freedom, +- 4 deviations.
    data = np.asarray(draw_mask((16, 64, 64), 0.1, noise(range(16))).data)
    expected = data.size / 256
    statistic = ((np.bincount(data.ravel(), minlength=256) - expected) ** 2).sum() / expected
    assert abs(statistic - 255) < 4 * np.sqrt(2 * 255)


@pytest.mark.parametrize("generator", GENERATORS)
def test_mask_with_its_last_axes_swapped(generator):
    mask = draw_mask((4, 5, 7), 0.5, noise(range(4), generator))
    np.testing.assert_array_equal(mask.swapped().kept(), np.asarray(mask.kept()).swapaxes(1, 2))


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 7), (4, 2, 3, 3)])
def test_any_shape_and_dtype(generator, shape):
    y = dropout(jnp.ones(shape, jnp.bfloat16), 0.5, noise(range(4), generator))
    assert (y.shape, y.dtype) == (shape, jnp.bfloat16)
    assert set(np.unique(y.astype(jnp.float32))) <= {0.0, 2.0}


@pytest.mark.parametrize("generator", GENERATORS)
def test_steps_sites_and_rows_are_unrelated(generator):
    source = noise([0, 1], generator)
    sources = [
        source,
        noise([5, 6], generator),
        noise([0, 1], generator, key=jax.random.key(4)),
        source.at(0),
        source.at(1),
        source.at(1).at(0),
        source.at(0).at(1),
    ]
    rows = np.stack([row.ravel() for each in sources for row in kept(each, (2, 64, 64))])
    rows = rows.astype(np.float64)
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < 5 / np.sqrt(rows.shape[1])


def test_threefry_pattern_of_a_row_ignores_its_neighbours():
    whole = kept(noise(range(8)), (8, 5, 7))
    order = np.asarray([6, 1, 3])
    np.testing.assert_array_equal(kept(noise(order), (3, 5, 7)), whole[order])


def test_threefry_patterns_are_the_same_on_any_number_of_devices(mesh):
    def draw(rows):
        return draw_mask((rows.shape[0], 6, 10), 0.5, noise(rows)).kept()

    rows = jnp.arange(16)
    expected = draw(rows)
    by_hand = jit(jax.shard_map(draw, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    np.testing.assert_array_equal(by_hand(rows), expected)
    by_compiler = jit(draw)(jax.device_put(rows, NamedSharding(mesh, P("data"))))
    np.testing.assert_array_equal(by_compiler, expected)


def test_step_is_the_same_on_devices_and_in_micro_batches(small, make_batch, mesh):
    config = dataclasses.replace(small, scan_layers=True)
    params, batch = drawn(config), make_batch(config, B=8, T=16, P=3)

    def loss(params, batch):
        sums = pretraining_sums(apply(config, params, batch, dropout_key=KEY), batch)
        return sums.mlm_loss + sums.nsp_loss

    def check(actual):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), actual, expected
        )

    step = jit(jax.value_and_grad(loss))
    expected = step(params, batch)

    sharded = jax.device_put(batch, NamedSharding(mesh, P("data")))
    check(step(jax.device_put(params, NamedSharding(mesh, P())), sharded))

    def local_step(params, batch):
        # The gradient of replicated parameters is summed over devices by differentiation itself.
        value, gradients = jax.value_and_grad(loss)(params, batch)
        return jax.lax.psum(value, "data"), gradients

    by_hand = jax.shard_map(local_step, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P()))
    check(jit(by_hand)(params, sharded))

    parts = [step(params, {k: v[i : i + 2] for k, v in batch.items()}) for i in range(0, 8, 2)]
    check(jax.tree.map(lambda *leaves: sum(leaves), *parts))


@pytest.mark.parametrize("generator", GENERATORS)
def test_gradient_passes_where_the_value_did(generator):
    source = noise(range(4), generator)
    gradient = jax.grad(lambda x: jnp.sum(3 * dropout(x, 0.3, source)))(jnp.ones((4, 8, 8)))
    np.testing.assert_allclose(gradient, 3 * dropout(jnp.ones((4, 8, 8)), 0.3, source), rtol=1e-6)


def test_without_rate_or_key_nothing_random_is_compiled(small, make_batch):
    params, batch = drawn(small), make_batch(small, B=2, T=16, P=3)
    off = dataclasses.replace(small, hidden_dropout=0.0, attention_dropout=0.0)

    def program(config, key):
        return jit(lambda: apply(config, params, batch, dropout_key=key)).lower().as_text()

    assert program(off, KEY) == program(small, None)
    assert "threefry" in program(small, KEY)
    assert "threefry" not in program(small, None)
    del batch["row"]
    program(small, None)  # and rows need no number


def test_rbg_runs_scanned_and_unrolled_and_separates_micro_batches(small, make_batch, mesh):
    config = dataclasses.replace(small, dropout_rng="rbg")
    params, batch = drawn(config), make_batch(config, B=8, T=16, P=3)

    def forward(config):
        return lambda batch: apply(config, params, batch, dropout_key=KEY).nsp_logits

    run = jit(forward(config))
    unrolled = run(batch)
    scanned = jit(forward(dataclasses.replace(config, scan_layers=True)))(batch)
    np.testing.assert_allclose(scanned, unrolled, atol=1e-6)
    same_rows = {key: jnp.tile(value[:1], (8,) + (1,) * (value.ndim - 1)) for key, value in
                 batch.items()} | {"row": batch["row"]}  # fmt: skip
    by_hand = jax.shard_map(forward(config), mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    for logits in (run(same_rows), jit(by_hand)(same_rows)):
        assert np.isfinite(logits).all()
        assert len(np.unique(logits[:, 0])) == 8


def test_wrong_noise_raises():
    with pytest.raises(ValueError, match=r"3 rows .* 2 rows"):
        dropout(jnp.ones((3, 4)), 0.1, noise([0, 1]))
    with pytest.raises(ValueError, match="'philox'"):
        dropout(jnp.ones((2, 4)), 0.1, noise([0, 1], "philox"))
