"""The same numbers on every mesh: shapes of the mesh, what is cut how, and what is refused."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_lamb import model
from bert_lamb.config import ConfigError, ModelConfig, OptimizerConfig, ParallelConfig
from bert_lamb.parallel.batches import local_rows
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import AXES, axis_sizes, describe_mesh, make_mesh, row_devices
from bert_lamb.training.state import TrainState
from tests.steps import MODEL, B, Setting, assert_close, batch, compiled, run

STEPS = 4
SLOW = pytest.mark.slow
# A few, since each is a program to compile; scripts/mesh_study.py compares thirteen.
MESHES = {
    "4x2": ParallelConfig(tensor=2),
    "2 slices": ParallelConfig(replica=2, fsdp=2),
    "fsdp x tensor": ParallelConfig(fsdp=2, tensor=2, gather="layer"),
    "fsdp, reduced by layer": ParallelConfig(fsdp=4, gather="layer", reduce="layer"),
}


@pytest.fixture(scope="module")
def alone() -> tuple[TrainState, list[dict[str, float]]]:
    return run([batch(i) for i in range(STEPS)])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "fsdp x tensor" else SLOW) for name in MESHES],
)
def test_p60_p56_every_mesh_trains_the_same_model(alone, name):
    """Dropout on, uneven mask counts: losses, norms, parameters and moments agree."""
    state, reports = run([batch(i) for i in range(STEPS)], Setting(MESHES[name]))
    assert_close(state, alone[0], 1e-5)
    for ours, theirs in zip(reports, alone[1], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@SLOW
@pytest.mark.parametrize("name", ["fsdp x tensor"])
def test_p61_accumulation_on_a_mesh_equals_one_big_batch(alone, name):
    state, _ = run([batch(i) for i in range(STEPS)], Setting(MESHES[name], micro_batches=2))
    assert_close(state, alone[0], 1e-5)


@SLOW
def test_unrolled_layers_gather_and_reduce_as_scanned_ones(alone):
    unrolled = dataclasses.replace(MODEL, scan_layers=False)
    setting = Setting(MESHES["fsdp, reduced by layer"], model=unrolled)
    state, _ = run([batch(i) for i in range(STEPS)], setting)
    assert_close(state, alone[0], 1e-5)


@pytest.mark.slow
def test_bf16_gradients_are_rounded_and_no_more():
    """The update follows the gradient's direction to what bf16 can hold, 2^-8."""
    exact, _ = run([batch(0)], Setting())
    rounded, _ = run([batch(0)], Setting(ParallelConfig(reduce_dtype="bfloat16")))
    for a, b in zip(
        jax.tree.leaves(exact.opt_state[1].moments.mu),
        jax.tree.leaves(rounded.opt_state[1].moments.mu),
        strict=True,
    ):
        assert np.max(np.abs(a - b)) <= 2**-6 * np.max(np.abs(a))
        assert np.any(np.asarray(a) != np.asarray(b)) or a.size < 32


def test_each_device_holds_its_part_of_parameters_and_moments():
    _, state, layout = compiled(Setting(MESHES["fsdp, reduced by layer"]))
    moments = state.opt_state[1].moments
    for tree in (state.params, moments.mu, moments.nu):
        for leaf, spec in zip(jax.tree.leaves(tree), jax.tree.leaves(layout.specs), strict=True):
            cut = 4 if "fsdp" in spec else 1
            assert leaf.addressable_shards[0].data.size * cut == leaf.size
    whole = sum(x.size for x in jax.tree.leaves(state.params))
    held = sum(x.addressable_shards[0].data.size for x in jax.tree.leaves(state.params))
    assert held < 0.4 * whole  # the vectors of a tiny model weigh much


# Bucket-wise clipping.


def _clipped(parallel: ParallelConfig, micro_batches: int = 1, limit: float = 0.05) -> TrainState:
    optimizer = OptimizerConfig(clip="bucket", clip_norm=limit)
    setting = Setting(parallel, micro_batches=micro_batches, optimizer=optimizer)
    return run([batch(0)], setting)[0]


def _mean_gradient(state: TrainState) -> list[np.ndarray]:
    return [np.asarray(m) / 0.1 for m in jax.tree.leaves(state.opt_state[1].moments.mu)]


@pytest.mark.parametrize("limit", [0.05, pytest.param(1e6, marks=pytest.mark.slow)])
def test_bucket_clipping_equals_its_definition(limit):
    """Each device's own gradient, scaled to the whole batch, is clipped bucket by bucket."""
    _, start, _ = compiled(Setting())
    rows = batch(0)
    divisors = [max(rows[f"{name}_weights"].sum(), 1) for name in ("masked_lm", "next_sentence")]

    @jax.jit
    def gradient(params, part):
        def loss(p):
            key = jax.random.fold_in(jax.random.key(5), 0)
            sums = model.pretraining_sums(model.apply(MODEL, p, part, dropout_key=key), part)
            return sums.mlm_loss / divisors[0] + sums.nsp_loss / divisors[1]

        return jax.grad(loss)(params)

    per_bucket = limit / np.sqrt(MODEL.num_layers + 1)
    total = None
    for device in range(8):
        part = {k: v[device * 2 : device * 2 + 2] for k, v in rows.items()}
        own = jax.tree.map(lambda g: 8 * np.asarray(g), gradient(start.params, part))
        clipped = jax.tree.map(np.array, own)
        outside = [k for k in own if k != "layers"]
        norm = np.sqrt(sum(np.sum(np.square(g)) for k in outside for g in jax.tree.leaves(own[k])))
        scale = min(1, per_bucket / norm)
        for k in outside:
            clipped[k] = jax.tree.map(lambda g, s=scale: g * s, own[k])
        for layer in range(MODEL.num_layers):
            leaves = jax.tree.leaves(own["layers"])
            norm = np.sqrt(sum(np.sum(np.square(g[layer])) for g in leaves))
            for g in jax.tree.leaves(clipped["layers"]):
                g[layer] *= min(1, per_bucket / norm)
        total = clipped if total is None else jax.tree.map(np.add, total, clipped)
    expected = [g / 8 for g in jax.tree.leaves(total)]

    for ours, theirs in zip(_mean_gradient(_clipped(ParallelConfig(), limit=limit)), expected,
                            strict=True):  # fmt: skip
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in expected))
    assert norm <= limit * (1 + 1e-6)


@SLOW
@pytest.mark.parametrize(
    "parallel",
    [ParallelConfig(reduce="layer"), ParallelConfig(fsdp=4, gather="layer")],
)  # fmt: skip
def test_bucket_clipping_is_the_same_however_gradients_are_reduced(parallel):
    assert_close(_clipped(parallel).params, _clipped(ParallelConfig()).params, 1e-5)


@pytest.mark.slow
def test_bucket_clipping_within_the_limit_changes_nothing(alone):
    loose = OptimizerConfig(clip="bucket", clip_norm=1e6)
    none = OptimizerConfig(clip_norm=None)
    clipped, _ = run([batch(0)], Setting(optimizer=loose))
    assert_close(clipped.params, run([batch(0)], Setting(optimizer=none))[0].params, 1e-6)


# Shapes of meshes and cuts.


def test_the_rest_goes_to_one_axis_and_replicas_to_slices():
    sizes = dict(make_mesh(ParallelConfig(fsdp=2, tensor=2)).shape)
    assert sizes == {"replica": 1, "data": 2, "fsdp": 2, "tensor": 2}
    sizes = dict(make_mesh(ParallelConfig(replica=2, data=1, fsdp=-1)).shape)
    assert sizes == {"replica": 2, "data": 1, "fsdp": 4, "tensor": 1}
    mesh = make_mesh(ParallelConfig(replica=2, tensor=2))
    assert describe_mesh(mesh) == "replica 2 x data 2 x tensor 2"
    assert row_devices(mesh) == 4
    assert describe_mesh(make_mesh(ParallelConfig(), jax.devices()[:1])) == "one device"


@dataclasses.dataclass(frozen=True)
class _Chip:
    """What `make_mesh` looks at, of a device of a slice that is not here."""

    id: int
    process_index: int
    slice_index: int
    platform: str = "gpu"


def test_one_replica_for_each_slice():
    chips = [_Chip(i, i // 2, i // 4) for i in reversed(range(8))]
    mesh = make_mesh(ParallelConfig(tensor=2), chips)
    assert dict(mesh.shape) == {"replica": 2, "data": 2, "fsdp": 1, "tensor": 2}
    for replica in range(2):
        assert {chip.slice_index for chip in mesh.devices[replica].flat} == {replica}
    assert [chip.id for chip in mesh.devices.flat] == list(range(8))
    with pytest.raises(ConfigError, match="replica = 1: expected a multiple of the 2 slices"):
        make_mesh(ParallelConfig(replica=1), chips)
    assert dict(make_mesh(ParallelConfig(replica=4), chips).shape)["data"] == 2


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        (ParallelConfig(fsdp=3), "replica 1 x fsdp 3 x tensor 1 = 3 devices: expected a divisor of "
         "the 8 devices"),
        (ParallelConfig(data=2, fsdp=2), "data 2 x fsdp 2 x tensor 1 = 4 devices: expected the 8"),
        (ParallelConfig(data=16), "= 16 devices: expected the 8 devices here"),
    ],
)  # fmt: skip
def test_meshes_that_do_not_fit_the_devices_are_refused_with_both_numbers(parallel, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_mesh(parallel)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": 0}, "data = 0: expected at least 1, or -1"),
        ({"fsdp": -1}, "fsdp = -1: expected a number, since data is -1"),
        ({"stall_seconds": -1}, "stall_seconds = -1"),
    ],
)
def test_impossible_sizes_are_refused_at_the_door(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        ParallelConfig(**values)


def _layout(config: ModelConfig, parallel: ParallelConfig) -> Layout:
    shapes = jax.eval_shape(lambda: model.init(config, jax.random.key(0)))
    return Layout.of(make_mesh(parallel), model.parameter_axes(shapes), shapes)


@pytest.mark.parametrize(
    ("change", "parallel", "message"),
    [
        ({"num_heads": 2, "hidden_size": 16}, {"tensor": 4},
         "tensor = 4: expected a divisor of 2, the axis 'heads' of layers/attention/"),
        ({"intermediate_size": 30}, {"tensor": 8, "data": 1}, "'heads'"),
        ({"intermediate_size": 30, "num_heads": 8}, {"tensor": 8, "data": 1},
         "tensor = 8: expected a divisor of 30, the axis 'mlp'"),
        ({"vocab_size": 60, "vocab_multiple": 4}, {"fsdp": 8},
         "fsdp = 8: expected a divisor of 60, the axis 'vocab' of embeddings/word/embedding "
         "(config.model.vocab_size, padded to a multiple of vocab_multiple)"),
    ],
)  # fmt: skip
def test_parameters_that_cannot_be_cut_evenly_are_named_with_both_numbers(
    change, parallel, message
):
    with pytest.raises(ConfigError) as error:
        _layout(dataclasses.replace(MODEL, **change), ParallelConfig(**parallel))
    assert message in str(error.value)


def test_which_axis_of_which_parameter_is_cut():
    specs = _layout(MODEL, ParallelConfig(fsdp=2, tensor=2)).specs
    layer = specs["layers"]
    P = PartitionSpec
    assert layer["attention"]["query"]["kernel"] == P(None, "tensor", "fsdp")
    assert layer["attention"]["query"]["bias"] == P(None, "tensor")
    assert layer["attention"]["out"]["kernel"] == P(None, "tensor", "fsdp")
    assert layer["mlp"]["up"]["kernel"] == P(None, "fsdp", "tensor")
    assert layer["mlp"]["down"]["kernel"] == P(None, "tensor", "fsdp")
    assert layer["mlp_norm"]["scale"] == P()
    assert specs["embeddings"]["word"]["embedding"] == P("tensor", "fsdp")
    assert specs["mlm"]["bias"] == P("tensor")
    only = _layout(MODEL, ParallelConfig(fsdp=4)).specs
    assert only["embeddings"]["word"]["embedding"] == P("fsdp")
    assert only["layers"]["mlp"]["down"]["kernel"] == P(None, "fsdp")
    assert only["mlm"]["bias"] == P()


def test_a_parameter_without_axis_names_is_refused():
    with pytest.raises(ValueError, match="parameter layers/adapter/kernel"):
        model.parameter_axes({"layers": {"adapter": {"kernel": jnp.ones((2, 4))}}})


def test_p32_rows_of_a_host_follow_from_its_devices():
    mesh = make_mesh(ParallelConfig(tensor=2))
    assert local_rows(mesh, B).tolist() == list(range(B))
    assert tuple(mesh.axis_names) == AXES
    with pytest.raises(ValueError, match="15 rows cannot be split over 4 devices"):
        local_rows(mesh, 15)


@pytest.mark.parametrize(
    ("devices", "cores", "slices", "tensor", "fsdp"),
    [
        (1, 1, 1, 1, 1), (8, 1, 1, 1, 4), (256, 1, 1, 1, 16), (12, 1, 1, 1, 4), (7, 1, 1, 1, 1),
        (512, 1, 2, 1, 16), (64, 1, 1, 4, 4),
        (8, 2, 1, 1, 4), (32, 2, 1, 1, 8), (64, 2, 1, 1, 16), (1024, 2, 1, 1, 64),
        (2048, 2, 1, 1, 64),
    ],
)  # fmt: skip
def test_fsdp_0_takes_a_ring_of_a_slice(devices, cores, slices, tensor, fsdp):
    config = ParallelConfig(fsdp=0, tensor=tensor)
    replica, data, found, _ = axis_sizes(config, devices, slices, cores)
    assert (replica, found) == (slices, fsdp)
    assert data == devices // (slices * fsdp * tensor)
