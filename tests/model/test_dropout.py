"""The pattern of dropout is a function of the step, the place and the row, not of the machine."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_lamb.model import apply, init, pretraining_sums
from bert_lamb.model.dropout import Noise, dropout, effective_rate, random_bytes
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


def test_rate_is_a_multiple_of_1_256():
    assert effective_rate(0.1) == 26 / 256
    assert effective_rate(0.0) == 0
    assert effective_rate(0.999) == 255 / 256


@pytest.mark.parametrize("generator", GENERATORS)
def test_share_kept_and_expectation(generator):
    x = jnp.full((16, 64, 64), 2.0)
    y = np.asarray(dropout(x, 0.1, noise(range(16), generator)))
    kept = y != 0
    rate = effective_rate(0.1)
    deviation = np.sqrt(rate * (1 - rate) / x.size)
    assert abs(kept.mean() - (1 - rate)) < 4 * deviation
    np.testing.assert_allclose(y[kept], 2 / (1 - rate), rtol=1e-6)
    # All bytes are equally likely: chi squared with 255 degrees of freedom, +- 4 deviations.
    count = np.bincount(
        np.asarray(random_bytes(noise(range(16), generator), x.shape)).ravel(), minlength=256
    )
    statistic = ((count - x.size / 256) ** 2).sum() / (x.size / 256)
    assert abs(statistic - 255) < 4 * np.sqrt(2 * 255)


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 7), (4, 2, 3, 3)])
def test_any_shape_and_dtype(generator, shape):
    y = dropout(jnp.ones(shape, jnp.bfloat16), 0.5, noise(range(4), generator))
    assert (y.shape, y.dtype) == (shape, jnp.bfloat16)
    assert set(np.unique(y.astype(jnp.float32))) <= {0.0, 2.0}


def test_steps_sites_and_rows_are_unrelated():
    def keep(source):
        return np.asarray(random_bytes(source, (2, 64, 64)) >= 128, np.float64)

    patterns = [
        keep(noise([0, 1])),
        keep(noise([5, 6])),
        keep(noise([0, 1], key=jax.random.key(4))),
        keep(noise([0, 1]).at(0)),
        keep(noise([0, 1]).at(1)),
        keep(noise([0, 1]).at(1).at(0)),
        keep(noise([0, 1]).at(0).at(1)),
    ]
    rows = np.stack([row.ravel() for pattern in patterns for row in pattern])
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < 5 / np.sqrt(rows.shape[1])


def test_threefry_pattern_of_a_row_ignores_its_neighbours():
    whole = random_bytes(noise(range(8)), (8, 5, 7))
    order = np.asarray([6, 1, 3])
    np.testing.assert_array_equal(random_bytes(noise(order), (3, 5, 7)), whole[order])


def test_threefry_bytes_are_the_same_on_any_number_of_devices(mesh):
    def draw(rows):
        return random_bytes(noise(rows), (rows.shape[0], 6, 10))

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
