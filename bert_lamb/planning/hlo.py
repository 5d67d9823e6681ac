"""The text of a compiled XLA program (`compiled.as_text()`) in a form one can ask questions of.

Only the syntax is read here: computations and their instructions, in the order in which the
compiler scheduled them. Which computation runs when and how often is the matter of
`bert_lamb.planning.schedule`. The text is that of the CPU, GPU and TPU compilers of XLA; what a
line does not have in common with the others stays in `Instruction.attributes`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

# Bits of an element. Types without data (token, opaque) are absent and count nothing.
_BITS = {
    "pred": 8,
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128},
}
# f8e4m3fn, f8e5m2 and their kin; f4e2m1fn.
_SMALL_FLOAT = re.compile(r"f(\d)e\dm\d\w*")

_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<= ]*)\]")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation|"
    r"branch_computations|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_PARTITIONS = re.compile(r"\b(num_partitions|replica_count)=(\d+)")


@dataclass(frozen=True)
class Array:
    """The type of one array: element type as XLA writes it (`f32`, `bf16`) and dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of the data on one device, without the padding of a tiled layout."""
        small = _SMALL_FLOAT.fullmatch(self.dtype)
        bits = int(small[1]) if small else _BITS.get(self.dtype, 0)
        return -(-math.prod(self.dims) * bits // 8)


@dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
        name: unique in the program, without the percent sign.
        opcode: as XLA writes it, for example `fusion` or `all-gather-start`.
        arrays: the result; the arrays of a tuple, nested or not, one after the other.
        operands: names of instructions of the same computation.
        arguments: the text between the parentheses, for constants and parameters.
        attributes: the text behind them.
        called: names of computations by the attribute that names them: `calls`, `to_apply`,
            `body`, `condition`, `branch_computations` and so on.
        op_name: the path that JAX gave the operation, empty if none.
        root: whether its result is that of the computation.
    """

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    arguments: str
    attributes: str
    called: Mapping[str, tuple[str, ...]]
    op_name: str
    root: bool

    @property
    def bytes(self) -> int:
        """Size of the result on one device."""
        return sum(array.bytes for array in self.arrays)


@dataclass(frozen=True)
class Computation:
    """A named sequence of instructions, in scheduled order."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """The instructions by their names."""
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> Instruction | None:
        """The instruction whose result is the computation's."""
        return next((i for i in self.instructions if i.root), None)


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        computations: by name.
        entry: the name of the one that runs first.
        devices: how many devices run it together.
    """

    computations: Mapping[str, Computation]
    entry: str
    devices: int


def read_program(text: str) -> Program:
    """Reads the text of a compiled program.

    Lines that are no instruction (tables of source files, comments) are skipped.

    Args:
        text: what `jax.stages.Compiled.as_text` returns.

    Raises:
        ValueError: if the text holds no entry computation, or is not scheduled, as that of
            `jax.stages.Lowered` is: order and loops would be those of the source, not of the
            machine.
    """
    header = text.partition("\n")[0]
    if not header.startswith("HloModule"):
        raise ValueError(
            f"not the text of a compiled program: it starts with {header[:60]!r}, expected "
            "'HloModule'; pass compiled.as_text()"
        )
    if "is_scheduled=true" not in header:
        raise ValueError(
            f"{header.split(',')[0]} is not scheduled (no is_scheduled=true in its first line); "
            "pass the text of a compiled program, not of a lowered one"
        )
    computations: dict[str, Computation] = {}
    entry, name = None, None
    lines: list[str] = []
    for line in text.splitlines():
        if name is None:
            found = _COMPUTATION.match(line)
            if found and "->" in line:
                name, lines = found[2], []
                entry = name if found[1] else entry
        elif line.startswith("}"):
            instructions = tuple(filter(None, map(_read_instruction, lines)))
            computations[name] = Computation(name, instructions)
            name = None
        else:
            lines.append(line)
    if entry is None:
        raise ValueError(f"{header.split(',')[0]} has no ENTRY computation; was the text cut off?")
    devices = math.prod(int(count) for _, count in _PARTITIONS.findall(header))
    return Program(MappingProxyType(computations), entry, devices)


def _read_instruction(line: str) -> Instruction | None:
    """Reads `[ROOT] %name = type opcode(arguments), attributes`, or None for anything else."""
    head = _INSTRUCTION.match(line)
    if not head:
        return None
    rest = line[head.end() :]
    type_end = _closing(rest) if rest.startswith("(") else rest.find(" ")
    opcode = _OPCODE.match(rest, type_end) if type_end > 0 else None
    if not opcode:
        return None
    arguments_end = _closing(rest, opcode.end() - 1)
    arguments, attributes = rest[opcode.end() : arguments_end - 1], rest[arguments_end:]
    op_name = _OP_NAME.search(attributes)
    return Instruction(
        name=head[2],
        opcode=opcode[1],
        arrays=tuple(_read_arrays(rest[:type_end])),
        operands=tuple(_OPERAND.findall(arguments)),
        arguments=arguments,
        attributes=attributes,
        called={
            attribute: tuple(re.findall(r"[\w.\-]+", names))
            for attribute, names in _CALLED.findall(attributes)
        },
        op_name=op_name[1] if op_name else "",
        root=bool(head[1]),
    )


def _read_arrays(text: str) -> list[Array]:
    return [
        # A bounded dynamic dimension is written <=8.
        Array(dtype, tuple(int(size.strip(" <=")) for size in dims.split(",") if size))
        for dtype, dims in _ARRAY.findall(text)
    ]


def _closing(text: str, start: int = 0) -> int:
    """Returns the place behind the parenthesis that closes the one at `start`."""
    depth = 0
    for found in re.compile(r"[()]").finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    return len(text)
