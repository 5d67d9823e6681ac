"""What a step spends its time on, sorted from the text of compiled programs."""

from pathlib import Path

import pytest

import bert_lamb
from bert_lamb.planning.hlo import read_program
from bert_lamb.planning.origins import origin, read_origins
from bert_lamb.planning.parts import PARTS, Unit, branch_cycles, random_bytes, units
from bert_lamb.planning.schedule import schedule
from tests.planning.handwritten import HEADER, SUM, written

PACKAGE = Path(bert_lamb.__file__).parent.as_posix()
TABLES = f"""\
FileNames
1 "{PACKAGE}/training/step.py"
2 "{PACKAGE}/optim/lamb.py"
3 "{PACKAGE}/model/bert.py"
4 "/site-packages/optax/_src/update.py"

FunctionNames
1 "f"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=2}}
2 {{file_name_id=2 function_name_id=1 line=8 end_line=8 column=1 end_column=2}}
3 {{file_name_id=3 function_name_id=1 line=9 end_line=9 column=1 end_column=2}}
4 {{file_name_id=4 function_name_id=1 line=9 end_line=9 column=1 end_column=2}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}
3 {{file_location_id=3 parent_frame_id=2}}
4 {{file_location_id=4 parent_frame_id=2}}

"""


def _cycles(count: int) -> str:
    return f'backend_config={{"estimated_cycles":"{count}"}}'


def _units(*lines: str, before: str = "") -> list[Unit]:
    text = written(*lines, before=before)
    head, body = text[: len(HEADER.format(devices=8))], text[len(HEADER.format(devices=8)) :]
    text = head + TABLES + body
    program = read_program(text)
    return units(program, schedule(program), read_origins(text))


def _fused(*lines: str, name: str = "inner") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"%{name} (q: f32[32,8]) -> f32[32,8] {{\n  %q = f32[32,8] parameter(0)\n{body}\n}}\n\n"


def _part_of_fusion(*lines: str, metadata: str = "") -> str:
    (unit,) = _units(
        f"ROOT %f = f32[32,8] fusion(%p), kind=kLoop, calls=%inner, {metadata}{_cycles(5)}",
        before=_fused(*lines),
    )
    return unit.part


def test_stacks_name_files_of_the_package_by_their_place_in_it():
    text = HEADER.format(devices=8) + TABLES + SUM
    stacks = read_origins(text)
    assert stacks[2] == ("optim/lamb.py", "training/step.py")
    assert stacks[4] == ("/site-packages/optax/_src/update.py", "training/step.py")
    program = read_program(written("%a = f32[4] negate(%p), metadata={stack_frame_id=3}"))
    instruction = program.computations["main"].by_name["a"]
    assert origin(instruction, stacks) == ("model/bert.py", "training/step.py")
    assert read_origins(HEADER.format(devices=8) + SUM) == {}


def test_a_fusion_around_a_product_is_one_unit_with_its_cycles_and_operations():
    before = _fused(
        "%w = f32[8,8] constant(0)",
        "%d = f32[32,8] dot(%q, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "ROOT %r = f32[32,8] exponential(%d)",
    )
    line = f"ROOT %f = f32[32,8] fusion(%p), kind=kOutput, calls=%inner, {_cycles(70)}"
    (unit,) = _units(line, before=before)
    assert (unit.part, unit.cycles, unit.flops) == ("matrix products", 70, 2 * 32 * 8 * 8)


@pytest.mark.parametrize(
    "product",
    [
        "dot(%q, %q), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}",
        "convolution(%x, %x), window={size=32 stride=31 lhs_dilate=32}, dim_labels=0bf_0oi->0bf",
    ],
    ids=["dot", "convolution"],
)
def test_a_batch_of_products_is_attention(product):
    lines = ("%x = f32[32,4,8] bitcast(%q)", f"ROOT %d = f32[32,4,4] {product}")
    assert _part_of_fusion(*lines) == "attention products"


def test_data_that_only_moves_are_copies():
    assert _part_of_fusion(
        "%b = f32[8,32] bitcast(%q)", "ROOT %t = f32[32,8] transpose(%b), dimensions={1,0}"
    ) == "copies"  # fmt: skip
    (unit,) = _units(f"ROOT %c = f32[32,8] copy(%p), {_cycles(9)}")
    assert unit.part == "copies"


def test_the_update_is_known_by_the_files_it_comes_from():
    multiply = "ROOT %m = f32[32,8] multiply(%q, %q)"
    for frame, part in ((2, "optimizer"), (4, "optimizer"), (1, "optimizer"), (3, "elementwise")):
        metadata = f'metadata={{op_name="jit(step)/mul" stack_frame_id={frame}}}, '
        assert _part_of_fusion(multiply, metadata=metadata) == part
    inside = f"{multiply}, metadata={{stack_frame_id=2}}"
    assert _part_of_fusion(inside) == "optimizer"
    assert _part_of_fusion(multiply) == "elementwise"


def test_random_bits_and_rare_operations_have_parts_of_their_own():
    name = 'metadata={op_name="jit(step)/threefry2x32"}, '
    assert _part_of_fusion("ROOT %x = u32[32,8] xor(%q, %q)", metadata=name) == "random bits"
    assert _part_of_fusion("ROOT %g = f32[32,8] gather(%q, %q)") == "other"


def test_cycles_in_a_loop_count_as_often_as_it_runs():
    before = f"""\
%condition (c: (s32[], f32[32,8])) -> pred[] {{
  %cp = (s32[], f32[32,8]) parameter(0)
  %ci = s32[] get-tuple-element(%cp), index=0
  %ten = s32[] constant(10)
  ROOT %less = pred[] compare(%ci, %ten), direction=LT
}}

%body (b: (s32[], f32[32,8])) -> (s32[], f32[32,8]) {{
  %bp = (s32[], f32[32,8]) parameter(0)
  %i = s32[] get-tuple-element(%bp), index=0
  %v = f32[32,8] get-tuple-element(%bp), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %e = f32[32,8] exponential(%v), {_cycles(3)}
  ROOT %bt = (s32[], f32[32,8]) tuple(%next, %e)
}}

"""
    lines = (
        "%start = s32[] constant(0)",
        "%in = (s32[], f32[32,8]) tuple(%start, %p)",
        "%loop = (s32[], f32[32,8]) while(%in), condition=%condition, body=%body",
        "ROOT %out = f32[32,8] get-tuple-element(%loop), index=1",
    )
    (unit,) = _units(*lines, before=before)
    assert (unit.part, unit.cycles, unit.times) == ("elementwise", 3, 10)


def test_of_a_conditional_the_cheapest_branch_counts_and_the_rest_is_told():
    before = "".join(
        _fused(f"ROOT %e{cycles} = f32[32,8] exponential(%q), {_cycles(cycles)}", name=name)
        for name, cycles in (("seldom", 50), ("often", 20))
    )
    found = _units(
        "ROOT %c = f32[32,8] conditional(%p, %p, %p), branch_computations={%seldom, %often}",
        before=before,
    )
    assert [(unit.cycles, unit.counted) for unit in found] == [(50, False), (20, True)]
    assert branch_cycles(found) == 30
    (alone,) = _units(
        "ROOT %c = f32[32,8] conditional(%p, %p, %p), true_computation=%seldom, "
        "false_computation=%nothing",
        before=before + _fused("ROOT %b = f32[32,8] bitcast(%q)", name="nothing"),
    )
    assert not alone.counted


def test_collectives_and_what_has_neither_cycles_nor_products_are_no_units():
    assert _units(
        f"%r = f32[32,8] all-reduce(%p), replica_groups={{}}, to_apply=%sum, {_cycles(9)}",
        "ROOT %n = f32[32,8] negate(%r)",
    ) == []  # fmt: skip


def test_bits_of_the_hardwares_generator_are_counted_without_its_state():
    program = read_program(
        written(
            "%g = (u32[4], u32[32,1024]) rng-bit-generator(%p), algorithm=rng_default",
            "%h = u32[16] rng-bit-generator(%p), algorithm=rng_default",
        )
    )
    assert random_bytes(schedule(program)) == 4 * 32 * 1024 + 4 * 16


def test_parts_are_named_once():
    assert len(set(PARTS)) == len(PARTS)
