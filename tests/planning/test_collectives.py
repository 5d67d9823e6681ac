"""The communication of programs compiled for eight CPU devices and for absent TPUs."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from bert_lamb.planning.collectives import Collective, collectives, describe
from bert_lamb.planning.topology import topology_devices
from tests.planning.programs import (
    X_BYTES,
    X,
    branch,
    compile_text,
    every_kind,
    f32,
    layered_gradient,
    loops,
    make_mesh,
    needs_libtpu,
)


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return make_mesh(jax.devices()[:8], data=4, fsdp=2)


def _facts(found: list[Collective], *names: str) -> list[tuple]:
    return sorted(tuple(getattr(one, name) for name in names) for one in found)


def test_each_kind_is_found_with_its_type_sizes_axes_and_groups(mesh):
    found = collectives(compile_text(every_kind, mesh, X), mesh.shape)
    size, half, twice = X_BYTES, X_BYTES // 2, X_BYTES * 2
    assert _facts(found, "kind", "operand_bytes", "result_bytes", "axes", "group_count") == [
        ("all-gather", size, twice, ("fsdp",), 4),
        ("all-reduce", size, size, ("data",), 2),
        ("all-to-all", size, size, ("fsdp",), 4),
        ("collective-permute", size, size, ("data",), 2),
        ("reduce-scatter", size, half, ("fsdp",), 4),
    ]
    assert {one.kind: one.bytes for one in found}["all-gather"] == twice
    assert {one.group_size for one in found if one.axes == ("data",)} == {4}
    assert {one.group_size for one in found if one.axes == ("fsdp",)} == {2}
    for one in found:
        assert one.dtypes == ("f32",)
        assert (one.times, one.loops, one.conditional) == (1, (), False)
        assert (one.asynchronous, one.start, one.during) == (False, one.done, ())


def test_a_sum_over_all_axes_and_one_without_a_mesh(mesh):
    text = compile_text(lambda x: lax.psum(x, ("data", "fsdp")), mesh, X)
    (one,) = collectives(text, mesh.shape)
    assert (one.axes, one.group_size, one.group_count) == (("data", "fsdp"), 8, 1)
    (one,) = collectives(text)
    assert (one.axes, one.group_size, one.group_count) == (None, 8, 1)


def test_groups_across_axes_span_no_axis(mesh):
    groups = [[0, 3, 5, 6], [1, 2, 4, 7]]
    flat = make_mesh(jax.devices()[:8], all=8)
    text = compile_text(lambda x: lax.psum(x, "all", axis_index_groups=groups), flat, X)
    (one,) = collectives(text, mesh.shape)
    assert (one.axes, one.group_size, one.group_count) == (None, 4, 2)


def test_a_mesh_of_another_size_is_refused(mesh):
    text = compile_text(lambda x: lax.psum(x, "data"), mesh, X)
    with pytest.raises(ValueError, match="has 16 devices, the program is compiled for 8"):
        collectives(text, {"data": 16})


def test_a_sum_that_the_cpu_takes_in_float32_is_marked(mesh):
    def narrow(x: jax.Array) -> jax.Array:
        return lax.psum_scatter(x.astype(jnp.bfloat16), "data", scatter_dimension=0, tiled=True)

    text = compile_text(narrow, mesh, X)
    (one,) = collectives(text, mesh.shape)
    assert (one.dtypes, one.widened, one.bytes) == (("f32",), True, X_BYTES)


def test_rounds_of_loops_multiply_and_an_unknown_number_is_said(mesh):
    found = collectives(compile_text(loops, mesh, X), mesh.shape)
    assert [one.kind for one in found] == ["all-reduce"] * 4
    assert sorted((one.axes, one.times or 0, len(one.loops)) for one in found) == [
        (("data",), 5, 1),
        (("data",), 6, 1),
        (("fsdp",), 0, 1),
        (("fsdp",), 21, 2),
    ]
    table = describe(found)
    assert sum(line.split()[6:9] == ["?", "?", "loop"] for line in table.splitlines()) == 1


def test_a_branch_is_marked_as_one(mesh):
    (one,) = collectives(compile_text(branch, mesh, X), mesh.shape)
    assert (one.axes, one.times, one.conditional) == (("fsdp",), 1, True)


@pytest.mark.parametrize("once", [True, False])
def test_gradients_summed_once_per_update_differ_from_once_per_part(mesh, once):
    def accumulate(weight: jax.Array, parts: jax.Array) -> jax.Array:
        def gradient(part: jax.Array) -> jax.Array:
            value = jax.grad(lambda w: jnp.sum(jnp.square(part @ w)))(weight)
            return value if once else lax.psum(value, "data")

        total, _ = lax.scan(lambda t, part: (t + gradient(part), None), weight * 0, parts)
        return lax.psum(total, "data") if once else total

    text = compile_text(accumulate, mesh, f32(256, 128), f32(6, 32, 256))
    (one,) = collectives(text, mesh.shape)
    assert (one.kind, one.bytes, one.axes) == ("all-reduce", X_BYTES, ("data",))
    assert (one.times, bool(one.loops)) == ((1, False) if once else (6, True))
    assert (one.backward_before, one.backward_after) == (1, 0)


def test_sums_stand_between_the_products_of_the_backward_pass_that_feed_them(mesh):
    weights = [f32(64, 64)] * 4
    text = compile_text(
        layered_gradient, mesh, weights, f32(32, 64), in_specs=(PartitionSpec(), PartitionSpec())
    )
    found = collectives(text, mesh.shape)
    assert sum(one.operand_bytes for one in found) == 4 * 64 * 64 * 4
    # Four products give the weights' gradients, three hand the gradient on.
    assert {one.backward_before + one.backward_after for one in found} == {7}
    assert min(one.backward_before for one in found) >= 1


def test_equal_collectives_share_a_line_of_the_table(mesh):
    def three(x: jax.Array) -> tuple[jax.Array, ...]:
        first = lax.all_gather(x, "fsdp", axis=0, tiled=True)
        second = lax.all_gather(jnp.sin(x @ x.T @ x), "fsdp", axis=0, tiled=True)
        return first, second, lax.ppermute(x, "data", [(0, 1), (1, 2), (2, 3), (3, 0)])

    table = describe(collectives(compile_text(three, mesh, X), mesh.shape))
    header, *rows = (line.split() for line in table.splitlines())
    assert header[:5] == ["collective", "over", "type", "bytes", "count"]
    assert header[5:] == ["runs", "total", "where", "from"]
    assert sorted(row[:-1] for row in rows) == [
        ["all-gather", "fsdp", "f32", "256", "KiB", "2", "1", "512", "KiB", "entry"],
        ["collective-permute", "data", "f32", "128", "KiB", "1", "1", "128", "KiB", "entry"],
    ]
    assert {row[-1] for row in rows} == {"shard_map/all_gather", "shard_map/ppermute"}


def test_a_program_without_communication_says_so(mesh):
    assert describe(collectives(compile_text(jnp.sin, mesh, X), mesh.shape)) == "no collectives"


# The same programs for TPUs, which write them differently.


def _tpu_mesh(name: str) -> jax.sharding.Mesh:
    devices = topology_devices(name)
    return make_mesh(devices, data=4, fsdp=len(devices) // 4)


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "asynchronous"),
    [
        ("v3:4x4", set()),
        ("v4:2x2x2", {"collective-permute"}),
        ("v5e:4x4", {"all-gather", "collective-permute"}),
    ],
)
def test_each_kind_is_found_once_on_tpu(name, asynchronous):
    tpu = _tpu_mesh(name)

    def busy(x: jax.Array) -> tuple[jax.Array, ...]:
        products = jnp.sin(x @ x.T) @ x
        return *every_kind(x), products

    found = collectives(compile_text(busy, tpu, X), tpu.shape)
    size, group = X_BYTES, tpu.shape["fsdp"]
    assert _facts(found, "kind", "operand_bytes", "result_bytes", "axes", "group_size") == [
        ("all-gather", size, size * group, ("fsdp",), group),
        ("all-reduce", size, size, ("data",), 4),
        ("all-to-all", size, size, ("fsdp",), group),
        ("collective-permute", size, size, ("data",), 4),
        ("reduce-scatter", size, size // group, ("fsdp",), group),
    ]
    assert {(one.times, one.dtypes) for one in found} == {(1, ("f32",))}
    assert {one.kind for one in found if one.asynchronous} == asynchronous
    for one in found:
        assert one.done is not None
        assert (one.done > one.start) == one.asynchronous


@needs_libtpu
@pytest.mark.parametrize("name", ["v3:4x4", "v5e:4x4"])
def test_rounds_of_loops_are_found_on_tpu_where_the_compiler_does_not_write_them_down(name):
    tpu = _tpu_mesh(name)
    text = compile_text(loops, tpu, X)
    assert "known_trip_count" not in text
    found = collectives(text, tpu.shape)
    assert sorted((one.axes, one.times or 0, len(one.loops)) for one in found) == [
        (("data",), 5, 1),
        (("data",), 6, 1),
        (("fsdp",), 0, 1),
        (("fsdp",), 21, 2),
    ]


@needs_libtpu
def test_bfloat16_stays_bfloat16_on_tpu():
    tpu = _tpu_mesh("v3:4x4")
    text = compile_text(lambda x: lax.psum(x.astype(jnp.bfloat16), "data"), tpu, X)
    (one,) = collectives(text, tpu.shape)
    assert (one.dtypes, one.widened, one.bytes) == (("bf16",), False, X_BYTES // 2)


OVERLAP = {
    "xla_jf_crs_combiner_threshold_in_bytes": str(512 * 512 * 4),  # one weight's gradient
    "xla_enable_async_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "true",
}


@needs_libtpu
@pytest.mark.parametrize("overlap", [False, True])
def test_on_tpu_it_shows_whether_sums_start_before_the_backward_pass_ends(overlap):
    devices = topology_devices("v5e:2x2")
    tpu = make_mesh(devices, data=4)
    rows = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
    found = collectives(
        compile_text(
            layered_gradient, tpu, [f32(512, 512)] * 4, rows,
            in_specs=(PartitionSpec(), PartitionSpec()), options=OVERLAP if overlap else None,
        ),
        tpu.shape,
    )  # fmt: skip
    assert {one.kind for one in found} == {"all-reduce"}
    assert sum(one.bytes for one in found) == 4 * 512 * 512 * 4
    hidden = [one for one in found if one.asynchronous and one.backward_after]
    if overlap:
        assert len(found) == 4
        assert len(hidden) >= 2
        for one in hidden:
            assert one.products_during >= 1
            assert any(step.matrix_product and step.backward for step in one.during)
    else:
        assert (len(found), hidden) == (1, [])
        assert found[0].backward_after == 0
