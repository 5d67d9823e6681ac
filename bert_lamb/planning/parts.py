"""What a compiled step spends its time on, in words: the compiler's own estimates, sorted."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bert_lamb.planning.collectives import KINDS
from bert_lamb.planning.hlo import Computation, Instruction, Program
from bert_lamb.planning.origins import origin
from bert_lamb.planning.products import product_flops
from bert_lamb.planning.schedule import Step

MATRIX, ATTENTION, ELEMENTWISE = "matrix products", "attention products", "elementwise"
COPIES, OPTIMIZER, RANDOM, OTHER = "copies", "optimizer", "random bits", "other"
# In the order in which reports show them.
PARTS = (MATRIX, ATTENTION, ELEMENTWISE, COPIES, OPTIMIZER, RANDOM, OTHER)

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_RANDOM = re.compile(r"threefry|random_bits|rng_bit_generator|rng_uniform")
# A batch of products as a TPU's compiler writes it: a window that steps from number to number of
# an array with gaps between them.
_BATCHED_WINDOW = re.compile(r"\bwindow=\{[^}]*\b(?:lhs_dilate|stride)=[\dx]*[2-9\d][\dx]*")
_BATCHED_DOT = re.compile(r"\blhs_batch_dims=\{\d")
_BATCHED_GROUPS = re.compile(r"\b(?:feature|batch)_group_count=(?!1\b)\d+")
_MOVERS = frozenset(("copy", "copy-start", "copy-done", "transpose"))
_MOVING = _MOVERS | frozenset(
    (
        "bitcast", "broadcast", "concatenate", "constant", "dynamic-slice", "dynamic-update-slice",
        "get-tuple-element", "pad", "parameter", "reshape", "slice", "tuple",
    )
)  # fmt: skip
_UNUSUAL = frozenset(("gather", "scatter", "sort", "custom-call"))


@dataclass(frozen=True)
class Unit:
    """What a device runs at once: an instruction outside of fusions, with all that is fused in it.

    Attributes:
        step: the instruction.
        part: one of `PARTS`.
        cycles: the compiler's estimate for one run; 0 where it gives none.
        flops: of the matrix products in one run.
        counted: whether it is outside of branches, or in the cheapest one of a conditional.
    """

    step: Step
    part: str
    cycles: int
    flops: int
    counted: bool = True

    @property
    def times(self) -> int:
        """Runs in one run of the program; 1 inside a loop of unknown length."""
        return self.step.times if self.step.times is not None else 1


def units(
    program: Program, steps: Iterable[Step], stacks: Mapping[int, tuple[str, ...]]
) -> list[Unit]:
    """Sorts a program into units; those without cycles and products are left out.

    Collectives are no units: what they take is a matter of the network.

    Args:
        program: the program.
        steps: its schedule.
        stacks: of `bert_lamb.planning.origins.read_origins`.
    """
    products: dict[tuple[int, ...], list[Step]] = {}
    outer: dict[tuple[int, ...], Step] = {}
    for step in steps:
        top = outermost(step)
        outer.setdefault(top.place, top)
        if step.matrix_product:
            products.setdefault(top.place, []).append(step)
    found = []
    for place, step in outer.items():
        within = products.get(place, [])
        cycles = _CYCLES.search(step.instruction.attributes)
        if (cycles or within) and not step.instruction.opcode.startswith(KINDS):
            part = _part(program, step, within, stacks)
            flops = sum(map(product_flops, within))
            found.append(Unit(step, part, int(cycles[1]) if cycles else 0, flops))
    dearer = {place for branches in _branches(found) for place in _dearer(branches)}
    return [dataclasses.replace(u, counted=u.step.place not in dearer) for u in found]


def counted_flops(found: Iterable[Unit]) -> int:
    """Adds up the operations of all products, each as often as it runs."""
    return sum(unit.flops * unit.times for unit in found if unit.counted)


def branch_cycles(found: Sequence[Unit]) -> int:
    """Adds up what the dearest branches of conditionals take beyond the cheapest."""
    costs = [[sum(u.cycles * u.times for u in branch) for branch in b] for b in _branches(found)]
    return sum(max(cost) - min(cost) for cost in costs)


def _branches(found: Iterable[Unit]) -> list[list[list[Unit]]]:
    """Lists for each conditional, not inside of another, the units of each branch."""
    conditionals: dict[tuple[int, ...], list[list[Unit]]] = {}
    for unit in found:
        path = (*unit.step.callers, unit.step)
        for outer, inner in itertools.pairwise(path):
            if outer.instruction.opcode == "conditional":
                count = sum(map(len, outer.instruction.called.values()))
                branches = conditionals.setdefault(outer.place, [[] for _ in range(count)])
                branches[inner.branch].append(unit)
                break
    return list(conditionals.values())


def _dearer(branches: Sequence[Sequence[Unit]]) -> Iterator[tuple[int, ...]]:
    """Yields the places of the units in all branches but the cheapest."""

    def cost(branch: Sequence[Unit]) -> tuple[int, int]:
        return sum(u.cycles * u.times for u in branch), sum(u.flops * u.times for u in branch)

    cheapest = min(range(len(branches)), key=lambda number: cost(branches[number]))
    for number, branch in enumerate(branches):
        if number != cheapest:
            yield from (unit.step.place for unit in branch)


def outermost(step: Step) -> Step:
    """Returns the outermost fusion around a step, the step itself if there is none."""
    return next((c for c in step.callers if c.instruction.opcode == "fusion"), step)


def random_bytes(steps: Iterable[Step]) -> int:
    """Adds up what the hardware's generator of random bits gives out in one run of the program."""
    return sum(
        max(array.bytes for array in step.instruction.arrays) * (step.times or 1)
        for step in steps
        if step.instruction.opcode == "rng-bit-generator"
    )


def _part(
    program: Program,
    step: Step,
    products: list[Step],
    stacks: Mapping[int, tuple[str, ...]],
) -> str:
    if products:
        # Attention alone multiplies what belongs to the same row and head.
        batched = sum(product_flops(p) for p in products if _batched(p.instruction))
        return ATTENTION if 2 * batched > sum(map(product_flops, products)) else MATRIX
    instruction = step.instruction
    inner = list(_inner(program, instruction))
    opcodes = {one.opcode for one in inner}
    names = " ".join((instruction.op_name, *(one.op_name for one in inner)))
    if "rng-bit-generator" in opcodes or _RANDOM.search(instruction.op_name):
        moved = opcodes <= _MOVING
        return COPIES if moved else RANDOM
    if _of_optimizer(step, inner, stacks):
        return OPTIMIZER
    if opcodes <= _MOVING:
        return COPIES if opcodes & _MOVERS or instruction.opcode == "fusion" else OTHER
    if "threefry" in names and not opcodes & {"exponential", "divide", "multiply"}:
        return RANDOM
    return OTHER if opcodes & _UNUSUAL else ELEMENTWISE


def _batched(instruction: Instruction) -> bool:
    text = instruction.attributes
    return bool(
        _BATCHED_WINDOW.search(text) or _BATCHED_DOT.search(text) or _BATCHED_GROUPS.search(text)
    )


def _of_optimizer(
    step: Step, inner: list[Instruction], stacks: Mapping[int, tuple[str, ...]]
) -> bool:
    """Says whether a unit belongs to the update: optimizer, clipping, norms of gradients."""
    stack = origin(step.instruction, stacks)
    if not stack:
        stack = next(filter(None, (origin(one, stacks) for one in reversed(inner))), ())
    if any(file.startswith("optim/") or "/optax/" in file for file in stack):
        return True
    # The step itself adds up micro-batches in a loop, and outside of it applies the update.
    return stack[:1] == ("training/step.py",) and not step.loops


def _inner(program: Program, instruction: Instruction) -> Iterator[Instruction]:
    """Yields what is fused in an instruction, the instruction itself if nothing is."""
    names = instruction.called.get("calls", ()) if instruction.opcode == "fusion" else ()
    computations: list[Computation] = [program.computations[name] for name in names]
    if not computations:
        yield instruction
    for computation in computations:
        for one in computation.instructions:
            if one.opcode == "fusion":
                yield from _inner(program, one)
            else:
                yield one
