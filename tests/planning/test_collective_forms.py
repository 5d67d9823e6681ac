"""The forms in which compilers write communication, written by hand."""

import pytest

from bert_lamb.planning.collectives import Collective, collectives, describe
from tests.planning.handwritten import written


def _one(*lines: str, **kwargs) -> Collective:
    (one,) = collectives(written(*lines, **kwargs))
    return one


# Groups


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("b",)),
        ("replica_groups={{0,2,4,6},{1,3,5,7}}", ("a",)),
        ("replica_groups={{6,4,2,0},{7,5,3,1}}", ("a",)),
        ("replica_groups={}", ("a", "b")),
        ("replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}", ()),
        ("replica_groups=[4,2]<=[8]", ("b",)),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", ("a",)),
        ("replica_groups=[1,8]<=[8]", ("a", "b")),
        ("replica_groups=mesh['x'=4,'y'=2] {'y'}", ("b",)),
        ("replica_groups=mesh['x'=4,'y'=2] {'x'}", ("a",)),
        ("replica_groups=mesh[x=4,y=2] {x,y}", ("a", "b")),
        ("replica_groups=mesh['all'=8] {'all':(4)2}", ("b",)),
        ("replica_groups=mesh['all'=8] {'all':(1)4}", ("a",)),
        ("replica_groups=mesh['y'=2,'x'=4], device_ids=([4,2]T(1,0)) {'x'}", ("a",)),
        ("replica_groups=mesh['y'=2,'x'=4], device_ids=(0,2,4,6,1,3,5,7) {'y'}", ("b",)),
        # Not along whole axes, or in a form that is not known.
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", None),
        ("replica_groups=[2,4]<=[8]", None),
        ("replica_groups=mesh['x'=4,'y'=2] {'z'}", None),
        ("replica_groups=stars(8)", None),
    ],
)
def test_groups_of_devices_are_mesh_axes(groups, expected):
    text = written(
        f"%r = f32[32,8]{{1,0}} all-reduce(%p), {groups}, use_global_device_ids=true, to_apply=%sum"
    )
    (one,) = collectives(text, {"a": 4, "b": 2})
    assert one.axes == expected
    if expected is not None:
        assert one.group_size == {"a": 4, "b": 2}.get("".join(expected), 8 if expected else 1)
        assert one.group_count == 8 // one.group_size


def test_devices_of_many_axes():
    text = written(
        "%r = f32[4] all-reduce(%p), replica_groups=[16,2]<=[2,4,2,2]T(1,2,3,0), to_apply=%sum",
        devices=32,
    )
    (one,) = collectives(text, {"replica": 2, "data": 4, "one": 1, "fsdp": 2, "tensor": 2})
    assert one.axes == ("replica",)


# Asynchronous forms


def test_a_start_and_its_done_are_one_and_what_is_between_is_known():
    one = _one(
        "%s = (f32[32,8]{1,0}, f32[256,8]{1,0}) all-gather-start(%p), replica_groups=[1,8]<=[8], "
        "dimensions={0}",
        "%d1 = f32[32,32] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "%d2 = f32[32,32] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "%x = f32[32,8] negate(%p)",
        "%d = f32[256,8]{1,0} all-gather-done(%s)",
        "%d3 = f32[32,32] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    )
    assert (one.kind, one.operand_bytes, one.result_bytes) == ("all-gather", 1024, 8192)
    assert (one.asynchronous, one.start, one.done, one.products_during) == (True, (1,), (5,), 2)
    assert [step.instruction.name for step in one.during] == ["d1", "d2", "x"]
    assert "async 2" in describe([one])


def test_a_wrapped_operation_is_asynchronous():
    before = """\
%wrapped (q: f32[32,8]) -> f32[4,8] {
  %q = f32[32,8]{1,0} parameter(0)
  ROOT %rs = f32[4,8]{1,0} reduce-scatter(%q), replica_groups=[1,8]<=[8], dimensions={0}, \
to_apply=%sum
}

"""
    one = _one(
        "%s = ((f32[32,8]{1,0}), f32[4,8]{1,0}, u32[]) async-start(%p), calls=%wrapped",
        "%u = ((f32[32,8]{1,0}), f32[4,8]{1,0}, u32[]) async-update(%s)",
        "%m = f32[32,32] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "%d = f32[4,8]{1,0} async-done(%u)",
        before=before,
    )
    assert (one.kind, one.operand_bytes, one.result_bytes) == ("reduce-scatter", 1024, 128)
    assert (one.computation, one.start, one.done) == ("wrapped", (1,), (4,))
    assert one.products_during == 1


def test_a_call_on_another_processor_is_asynchronous():
    before = """\
%called (q: f32[32,8]) -> f32[32,8] {
  %q = f32[32,8]{1,0} parameter(0)
  ROOT %ar = f32[32,8]{1,0} all-reduce(%q), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%sum
}

"""
    one = _one(
        "%s = ((f32[32,8]{1,0}), f32[32,8]{1,0}) call-start(%p), "
        'async_execution_thread="sparsecore", to_apply=%called',
        "%m = f32[32,32] convolution(%p, %p), dim_labels=bf_oi->bf",
        "%d = f32[32,8]{1,0} call-done(%s)",
        before=before,
    )
    assert (one.kind, one.times, one.asynchronous, one.products_during) == (
        "all-reduce",
        1,
        True,
        1,
    )


def test_an_end_out_of_sight_is_not_made_up():
    one = _one(
        "%s = f32[32,8]{1,0} all-reduce-start(%p), replica_groups={}, to_apply=%sum",
        "ROOT %t = (f32[32,8]{1,0}) tuple(%s)",
    )
    assert (one.asynchronous, one.done, one.during) == (True, None, ())
    assert one.result_bytes == 1024


CHAIN = """\
%begin{n} (q: f32[32,8]) -> (f32[32,8], f32[32,8]) {{
  %q{n} = f32[32,8]{{1,0}} parameter(0)
  %ar{n} = f32[32,8]{{1,0}} all-reduce(%q{n}), replica_groups={{}}, to_apply=%sum, \
frontend_attributes={{chain_id="{n}"}}, \
backend_config={{"async_collective_fusion_config":{{"flag_start":"-1","flag_end":"-1"}}}}
  ROOT %t{n} = (f32[32,8]{{1,0}}, f32[32,8]{{1,0}}) tuple(%q{n}, %ar{n})
}}

%middle{n} (q: f32[32,8]) -> f32[32,8] {{
  %q{n}m = f32[32,8]{{1,0}} parameter(0)
  %ar{n}m = f32[32,8]{{1,0}} all-reduce(%q{n}m), replica_groups={{}}, to_apply=%sum, \
frontend_attributes={{chain_id="{n}"}}, \
backend_config={{"async_collective_fusion_config":{{"flag_start":"2","flag_end":"8"}}}}
  ROOT %m{n} = f32[32,32] convolution(%q{n}m, %q{n}m), dim_labels=bf_oi->bf
}}

%end{n} (q: f32[32,8]) -> f32[32,8] {{
  %q{n}e = f32[32,8]{{1,0}} parameter(0)
  ROOT %ar{n}e = f32[32,8]{{1,0}} all-reduce(%q{n}e), replica_groups={{}}, to_apply=%sum, \
frontend_attributes={{chain_id="{n}"}}, \
backend_config={{"async_collective_fusion_config":{{"flag_start":"2","flag_end":"8"}}}}
}}

"""


def test_a_chain_of_fusions_is_one_collective_and_chains_may_interleave():
    found = collectives(
        written(
            "%s0 = (f32[32,8], f32[32,8]) fusion(%p), kind=kCustom, calls=%begin0",
            "%s1 = (f32[32,8], f32[32,8]) fusion(%p), kind=kCustom, calls=%begin1",
            "%m0 = f32[32,8] fusion(%s0), kind=kOutput, calls=%middle0",
            "%e0 = f32[32,8] fusion(%m0), kind=kCustom, calls=%end0",
            "%m1 = f32[32,8] fusion(%s1), kind=kOutput, calls=%middle1",
            "%x = f32[32,32] convolution(%p, %p), dim_labels=bf_oi->bf",
            "%e1 = f32[32,8] fusion(%m1), kind=kCustom, calls=%end1",
            before=CHAIN.format(n=0) + CHAIN.format(n=1),
        )
    )
    assert [(one.kind, one.start, one.done, one.products_during) for one in found] == [
        ("all-reduce", (1,), (4,), 1),
        ("all-reduce", (2,), (7,), 3),
    ]
    assert [one.bytes for one in found] == [1024, 1024]


# Forms of one operation


def test_several_arrays_reduced_together_are_one():
    one = _one(
        "%q = bf16[16]{0} parameter(1)",
        "%r = (f32[32,8]{1,0}, bf16[16]{0}) all-reduce(%p, %q), replica_groups={}, to_apply=%sum",
    )
    assert (one.dtypes, one.bytes) == (("f32", "bf16"), 1024 + 32)


def test_a_sum_of_which_each_device_keeps_a_part_is_a_reduce_scatter():
    before = """\
%all-reduce-scatter (q: f32[32,8], i: s32[]) -> f32[4,8] {
  %q = f32[32,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  %ar = f32[32,8]{1,0} all-reduce(%q), replica_groups={}, to_apply=%sum
  ROOT %ds = f32[4,8]{1,0} dynamic-slice(%ar, %i, %z), dynamic_slice_sizes={4,8}
}

"""
    one = _one(
        "%i = s32[] constant(0)",
        "%f = f32[4,8]{1,0} fusion(%p, %i), kind=kCustom, calls=%all-reduce-scatter",
        before=before,
    )
    assert (one.kind, one.operand_bytes, one.result_bytes) == ("reduce-scatter", 1024, 128)
    assert (one.asynchronous, one.start) == (False, (2,))


def test_a_backward_pass_is_known_by_its_name():
    def dot(name: str, path: str) -> str:
        return (
            f"%{name} = f32[32,32] dot(%p, %p), lhs_contracting_dims={{1}}, "
            f'rhs_contracting_dims={{1}}, metadata={{op_name="jit(step)/{path}/dot_general"}}'
        )

    found = collectives(
        written(
            dot("forward", "jvp(layer)"),
            dot("late", "transpose(jvp(layer))"),
            "%first = f32[32,8] all-reduce(%p), replica_groups={}, to_apply=%sum",
            dot("again", "transpose(jvp(layer))/rematted_computation"),
            dot("early", "transpose(jvp())"),
            "%second = f32[32,8] all-reduce(%p), replica_groups={}, to_apply=%sum",
            dot("update", "optimizer"),
        )
    )
    assert [(one.backward_before, one.backward_after) for one in found] == [(1, 2), (3, 0)]
