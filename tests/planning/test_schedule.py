"""Order, loops and matrix products of compiled programs."""

import pytest

from bert_lamb.planning.hlo import read_program
from bert_lamb.planning.schedule import schedule
from tests.planning.handwritten import written


def test_a_library_product_counts_as_one():
    steps = schedule(
        read_program(
            written(
                '%a = f32[4] custom-call(%p, %p), custom_call_target="__cublas$gemm"',
                '%b = f32[4] custom-call(%p, %p), custom_call_target="__onednn$matmul"',
                '%c = f32[4] custom-call(%p), custom_call_target="Sharding"',
            )
        )
    )
    assert [step.instruction.name for step in steps if step.matrix_product] == ["a", "b"]


def _loop(
    condition: str,
    counter: str = "%next = s32[] add(%i, %one)",
    start: int = 0,
    carried: int = 1,
    attributes: str = "",
) -> str:
    before = f"""\
%compare (x: s32[], y: s32[]) -> pred[] {{
  %x = s32[] parameter(0)
  %y = s32[] parameter(1)
  ROOT %c = pred[] compare(%x, %y), direction=LT
}}

%condition (c: (s32[], s32[], f32[32,8])) -> pred[] {{
  %cp = (s32[], s32[], f32[32,8]{{1,0}}) parameter(0)
  %ci = s32[]{{:T(128)}} get-tuple-element(%cp), index=0
  %cn = s32[]{{:T(128)}} get-tuple-element(%cp), index=1
  %ten = s32[]{{:T(128)}} constant(10)
  {condition}
}}

%body (b: (s32[], s32[], f32[32,8])) -> (s32[], s32[], f32[32,8]) {{
  %bp = (s32[], s32[], f32[32,8]{{1,0}}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%bp), index=0
  %n = s32[]{{:T(128)}} get-tuple-element(%bp), index=1
  %v = f32[32,8]{{1,0}} get-tuple-element(%bp), index=2
  %one = s32[] constant(1)
  %two = s32[] constant(2)
  {counter}
  %r = f32[32,8]{{1,0}} all-reduce(%v), replica_groups={{}}, to_apply=%sum
  ROOT %bt = (s32[], s32[], f32[32,8]{{1,0}}) tuple(%next, %n, %r)
}}

"""
    return written(
        f"%start = s32[] constant({start})",
        f"%limit = s32[] constant({carried})",
        "%copied = s32[] copy(%start)",
        "%init = (s32[], s32[], f32[32,8]{1,0}) tuple(%copied, %limit, %p)",
        "%w = (s32[], s32[], f32[32,8]{1,0}) while(%init), condition=%condition, body=%body"
        + attributes,
        before=before,
    )


@pytest.mark.parametrize(
    ("loop", "rounds"),
    [
        ({"condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT"}, 10),
        ({"condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LE"}, 11),
        ({"condition": "ROOT %c = pred[] compare(%ten, %ci), direction=GT"}, 10),
        ({"condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT", "start": 12}, 0),
        ({"condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT", "start": -3}, 13),
        (
            {
                "condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT",
                "counter": "%next = s32[] add(%two, %i)",
                "start": 1,
            },
            5,
        ),
        (
            {
                "condition": "ROOT %c = pred[] compare(%ci, %ten), direction=GT",
                "counter": "%next = s32[] subtract(%i, %one)",
                "start": 14,
            },
            4,
        ),
        ({"condition": "ROOT %c = pred[] compare(%ci, %cn), direction=LT", "carried": 6}, 6),
        ({"condition": "ROOT %c = pred[] fusion(%ci, %ten), kind=kLoop, calls=%compare"}, 10),
        (
            {
                "condition": "ROOT %c = pred[] custom-call(%cp)",
                "attributes": ', backend_config={"known_trip_count":{"n":"9"}}',
            },
            9,
        ),
        # What is not a count is not taken for one.
        ({"condition": "ROOT %c = pred[] custom-call(%cp)"}, None),
        ({"condition": "ROOT %c = pred[] compare(%ci, %ten), direction=NE"}, None),
        (
            {
                "condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT",
                "counter": "%next = s32[] multiply(%i, %two)",
            },
            None,
        ),
        (
            {
                "condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT",
                "counter": "%next = s32[] subtract(%one, %i)",
            },
            None,
        ),
        (
            {
                "condition": "ROOT %c = pred[] compare(%ci, %ten), direction=LT",
                "counter": "%next = s32[] subtract(%i, %one)",
            },
            None,
        ),
    ],
)
def test_the_length_of_a_loop(loop, rounds):
    steps = schedule(read_program(_loop(**loop)))
    (step,) = (step for step in steps if step.instruction.opcode == "while")
    assert step.trip_count == rounds
    (inside,) = (step for step in steps if step.instruction.opcode == "all-reduce")
    assert (inside.times, inside.loops) == (rounds, (step,))


def test_steps_inside_a_computation_follow_the_step_that_calls_it():
    before = """\
%inner (q: f32[32,8]) -> f32[32,8] {
  %q = f32[32,8]{1,0} parameter(0)
  ROOT %n = f32[32,8]{1,0} negate(%q)
}

"""
    lines = (
        "%f = f32[32,8] fusion(%p), kind=kLoop, calls=%inner",
        "%c = f32[32,8] conditional(%p, %f, %f), branch_computations={%inner, %inner}",
        "%r = f32[32,8] all-reduce(%c), replica_groups={}, to_apply=%sum",
    )
    steps = schedule(read_program(written(*lines, before=before)))
    names = [step.instruction.name for step in steps]
    assert names == ["p", "f", "q", "n", "c", "q", "n", "q", "n", "r"]
    assert [step.place for step in steps] == sorted(step.place for step in steps)
    assert [step.conditional for step in steps] == [False] * 5 + [True] * 4 + [False]
