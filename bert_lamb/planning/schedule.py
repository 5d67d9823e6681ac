"""The order in which a compiled program runs its instructions, and how often each one runs."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bert_lamb.planning.hlo import Computation, Instruction, Program

# Computations behind other attributes of other opcodes (the sum of an all-reduce, the comparison
# of a sort) work on scalars and belong to the instruction itself.
_BODIES = (
    "calls",
    "body",
    "branch_computations",
    "true_computation",
    "false_computation",
    "called_computations",
)
_CALLS = ("call", "call-start", "async-start")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_DIRECTION = re.compile(r"\bdirection=(\w+)")
_INDEX = re.compile(r"\bindex=(\d+)")
_FLIPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
_SAME_VALUE = ("copy", "copy-start", "copy-done", "bitcast", "optimization-barrier")
_PRODUCTS = ("dot", "convolution")
_LIBRARY_PRODUCT = re.compile(r'custom_call_target="[^"]*(matmul|gemm)', re.IGNORECASE)
_BACKWARD = "transpose(jvp"


@dataclass(frozen=True)
class Step:
    """One instruction at its place in the schedule.

    The body of a loop is one stretch of the schedule, however often it runs.

    Attributes:
        instruction: the instruction.
        computation: in which it stands.
        index: its place in that computation.
        caller: the step that calls the computation (a loop, a fusion, a call); None in the entry.
        branch: which of the caller's computations this is, counted from 0.
        trip_count: of a loop, None if unknown or if this is no loop.
    """

    instruction: Instruction
    computation: Computation = field(repr=False)
    index: int
    caller: "Step | None" = field(default=None, repr=False)
    branch: int = 0
    trip_count: int | None = None

    @cached_property
    def place(self) -> tuple[int, ...]:
        """Its place in the whole schedule: places compare as the steps follow one another.

        The first number is the place in the entry computation. Two numbers follow for each
        computation that is called on the way: which of its caller's, and the place in it.
        """
        return (*self.caller.place, self.branch, self.index) if self.caller else (self.index,)

    @cached_property
    def callers(self) -> tuple["Step", ...]:
        """The steps around this one, the outermost first."""
        return (*self.caller.callers, self.caller) if self.caller else ()

    @cached_property
    def loops(self) -> tuple["Step", ...]:
        """The loops around this step, the outermost first."""
        return tuple(caller for caller in self.callers if caller.instruction.opcode == "while")

    @cached_property
    def times(self) -> int | None:
        """How often it runs in one run of the program; None inside a loop of unknown length.

        Inside a branch of a conditional it is what happens if that branch is always taken.
        """
        counts = [loop.trip_count for loop in self.loops]
        known = [count for count in counts if count is not None]
        return math.prod(known) if len(known) == len(counts) else None

    @cached_property
    def conditional(self) -> bool:
        """Whether it stands in a branch that may not be taken."""
        return any(caller.instruction.opcode == "conditional" for caller in self.callers)

    @property
    def matrix_product(self) -> bool:
        """Whether it multiplies matrices: a dot, a convolution, or a library's."""
        return self.instruction.opcode in _PRODUCTS or bool(
            self.instruction.opcode == "custom-call"
            and _LIBRARY_PRODUCT.search(self.instruction.attributes)
        )

    @property
    def backward(self) -> bool:
        """Whether JAX made it while it transposed a derivative: the backward pass.

        What is computed a second time there because of `jax.checkpoint` counts as backward.
        """
        names = (self.instruction.op_name, *(s.instruction.op_name for s in self.callers))
        return any(_BACKWARD in name for name in names)


def schedule(program: Program) -> list[Step]:
    """Lists every instruction of a program in the order of execution.

    A step is followed by the steps of the computations it calls, once per call. What a device may
    do beside its neighbours (copies, asynchronous collectives) stands where it starts.
    """
    return list(_walk(program, program.computations[program.entry], None, 0))


def _walk(
    program: Program, computation: Computation, caller: Step | None, branch: int
) -> Iterator[Step]:
    for index, instruction in enumerate(computation.instructions):
        count = None
        if instruction.opcode == "while":
            count = _trip_count(program, computation, instruction, caller)
        step = Step(instruction, computation, index, caller, branch, count)
        yield step
        for inner, name in enumerate(_called(instruction)):
            if name in program.computations:
                yield from _walk(program, program.computations[name], step, inner)


def _called(instruction: Instruction) -> Iterator[str]:
    for attribute, names in instruction.called.items():
        if attribute in _BODIES or (attribute == "to_apply" and instruction.opcode in _CALLS):
            yield from names


# A loop's length. The CPU and GPU compilers write it down; the TPU compiler leaves a counter that
# starts at a constant, grows by a constant and is compared with a constant, where the constants
# may be carried through the loop, or through the loops around it.


def _trip_count(
    program: Program, computation: Computation, loop: Instruction, caller: Step | None
) -> int | None:
    known = _TRIP_COUNT.search(loop.attributes)
    if known:
        return int(known[1])
    step = Step(loop, computation, 0, caller)
    condition, body = _parts(program, loop)
    if condition is None or body is None:
        return None
    for left, direction, right in _comparisons(program, condition):
        element = _element(condition, left)
        if element is None:
            continue
        start = _carried(program, step, element)
        stride = _stride(program, body, element, step)
        limit = _constant(program, condition, right, step)
        if start is not None and stride and limit is not None:
            return _length(start, stride, limit, direction)
    return None


def _length(start: int, stride: int, limit: int, direction: str) -> int | None:
    if direction in ("LE", "GE"):
        limit, direction = limit + (1 if direction == "LE" else -1), direction[0] + "T"
    if (direction == "LT" and stride > 0) or (direction == "GT" and stride < 0):
        return max(0, -(-(limit - start) // stride))
    return None


def _parts(program: Program, loop: Instruction) -> tuple[Computation | None, Computation | None]:
    condition, body = (
        program.computations.get(loop.called.get(part, ("",))[0]) for part in ("condition", "body")
    )
    return condition, body


def _comparisons(program: Program, condition: Computation) -> list[tuple[str, str, str]]:
    """Reads what a condition compares how, as (value, direction, value) from either side."""
    root = condition.root
    if root is None:
        return []
    values: Sequence[str] = root.operands
    if root.opcode == "fusion":
        inner = program.computations.get(root.called.get("calls", ("",))[0])
        if inner is None or inner.root is None:
            return []
        root, sides = inner.root, [_parameter(inner, name) for name in inner.root.operands]
        # A constant may have moved into the fusion, where this does not follow it.
        values = [values[side] for side in sides if side is not None and side < len(values)]
    direction = _DIRECTION.search(root.attributes)
    if root.opcode != "compare" or not direction or len(values) != 2:
        return []
    left, right = values
    flipped = _FLIPPED.get(direction[1], direction[1])
    return [(left, direction[1], right), (right, flipped, left)]


def _follow(computation: Computation, name: str) -> Instruction | None:
    """Finds the instruction that makes a value, behind copies and tuples."""
    instruction = computation.by_name.get(name)
    while instruction is not None:
        if instruction.opcode in _SAME_VALUE and instruction.operands:
            instruction = computation.by_name.get(instruction.operands[0])
        elif instruction.opcode == "get-tuple-element":
            source = _follow(computation, instruction.operands[0])
            index = _index(instruction)
            if source is None or source.opcode != "tuple" or index >= len(source.operands):
                return instruction
            instruction = computation.by_name.get(source.operands[index])
        else:
            return instruction
    return None


def _index(instruction: Instruction) -> int:
    found = _INDEX.search(instruction.attributes)
    return int(found[1]) if found else 0


def _parameter(computation: Computation, name: str) -> int | None:
    instruction = _follow(computation, name)
    if instruction is None or instruction.opcode != "parameter":
        return None
    return int(instruction.arguments)


def _element(computation: Computation, name: str) -> int | None:
    """Returns which element of the computation's one parameter, a tuple, a value is."""
    instruction = _follow(computation, name)
    if instruction is None or instruction.opcode != "get-tuple-element":
        return None
    source = _follow(computation, instruction.operands[0])
    if source is None or source.opcode != "parameter":
        return None
    return _index(instruction)


def _constant(
    program: Program, computation: Computation, name: str, loop: Step | None
) -> int | None:
    """Finds the integer that a value always has in a part (condition, body) of `loop`."""
    instruction = _follow(computation, name)
    if instruction is None:
        return None
    if instruction.opcode == "constant":
        literal = instruction.arguments
        return int(literal) if re.fullmatch(r"-?\d+", literal) else None
    if instruction.opcode != "get-tuple-element":
        return None
    element, source = _index(instruction), _follow(computation, instruction.operands[0])
    if source is not None and source.opcode == "while":
        loop = Step(source, computation, 0, loop)  # what an earlier loop hands on unchanged
    elif source is None or source.opcode != "parameter" or loop is None:
        return None
    _, body = _parts(program, loop.instruction)
    if body is None or body.root is None or element >= len(body.root.operands):
        return None
    unchanged = _element(body, body.root.operands[element]) == element
    return _carried(program, loop, element) if unchanged else None


def _carried(program: Program, loop: Step, element: int) -> int | None:
    """Finds the integer with which an element of what a loop carries starts."""
    outer = loop.caller if loop.caller and loop.caller.instruction.opcode == "while" else None
    inputs = _follow(loop.computation, loop.instruction.operands[0])
    if inputs is None or inputs.opcode != "tuple" or element >= len(inputs.operands):
        return None
    return _constant(program, loop.computation, inputs.operands[element], outer)


def _stride(program: Program, body: Computation, element: int, loop: Step) -> int | None:
    """Finds by how much an element of what a loop carries grows in each round."""
    if body.root is None or body.root.opcode != "tuple" or element >= len(body.root.operands):
        return None
    total = _follow(body, body.root.operands[element])
    if total is None or total.opcode not in ("add", "subtract"):
        return None
    if len(total.operands) != 2:
        return None
    left, right = total.operands
    if total.opcode == "add" and _element(body, right) == element:
        left, right = right, left
    if _element(body, left) != element:
        return None
    stride = _constant(program, body, right, loop)
    return -stride if stride is not None and total.opcode == "subtract" else stride
