"""The syntax of compiled programs."""

import pytest

from bert_lamb.planning.hlo import Array, read_program
from bert_lamb.planning.schedule import schedule
from tests.planning.handwritten import HEADER, SUM, written


def test_an_instruction_is_read_whole():
    program = read_program(
        written(
            "%t = (f32[2,3]{1,0:T(8,128)}, /*index=1*/(bf16[4]{0}, token[])) tuple(%p, %q)",
            'ROOT %f.1-x = f8e4m3fn[8,<=16]{1,0:T(8,128)(4,1)S(1)} fusion(%t, %p), kind=kLoop, '
            'calls=%sum, metadata={op_name="jit(f)/a(b)/\\"c\\"" source_line=3}',
        )
    )  # fmt: skip
    _, pair, fusion = program.computations[program.entry].instructions
    assert pair.arrays == (Array("f32", (2, 3)), Array("bf16", (4,)), Array("token", ()))
    assert (pair.opcode, pair.operands, pair.bytes, pair.root) == ("tuple", ("p", "q"), 32, False)
    assert fusion.arrays == (Array("f8e4m3fn", (8, 16)),)
    assert (fusion.name, fusion.operands, fusion.bytes) == ("f.1-x", ("t", "p"), 128)
    assert fusion.called == {"calls": ("sum",)}
    assert fusion.op_name == 'jit(f)/a(b)/\\"c\\"'
    assert program.computations[program.entry].root is fusion


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (Array("f32", ()), 4),
        (Array("bf16", (3, 5)), 30),
        (Array("pred", (7,)), 7),
        (Array("s4", (3,)), 2),
        (Array("u64", (2,)), 16),
        (Array("c64", (2,)), 16),
        (Array("f8e5m2", (10,)), 10),
        (Array("f4e2m1fn", (10,)), 5),
        (Array("f32", (0, 4)), 0),
        (Array("token", ()), 0),
        (Array("opaque", (9,)), 0),
    ],
)
def test_the_size_of_an_array(array, size):
    assert array.bytes == size


def test_lines_of_no_known_form_are_skipped():
    program = read_program(
        written(
            "// a comment",
            "%half = f32[32,8]",
            "%odd = f32[32,8] opcode-without-parentheses",
            "%open = f32[4] weird(%p, (",
            "%all = f32[32,8]{1,0} all-reduce(%p), replica_groups={}, to_apply=%sum",
            "%lost = f32[4] fusion(%p), calls=%not_here",
            "%unheard = f32[4] new-operation(%nowhere), future={[(}",
        )
    )
    names = [step.instruction.name for step in schedule(program)]
    assert names == ["p", "open", "all", "lost", "unheard"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "starts with '', expected 'HloModule'"),
        ("module @jit_step attributes {}", "starts with 'module @jit_step"),
        ("HloModule jit_step, num_partitions=8\n", "HloModule jit_step is not scheduled"),
        (HEADER.format(devices=8) + SUM, "HloModule jit_step has no ENTRY computation"),
    ],
)
def test_what_is_no_compiled_program_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_program(text)
