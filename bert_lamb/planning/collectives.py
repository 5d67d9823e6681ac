"""The communication in a compiled program: what is sent, between whom, how often, and when.

    >>> found = collectives(compiled.as_text(), mesh.shape)
    >>> print(describe(found))

Nothing here counts seconds. It answers what a program's author decided and the compiler may have
changed: how often gradients are reduced per update, over which mesh axes, in which type, and
whether a reduction starts while the backward pass still runs.
"""

import bisect
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bert_lamb.planning.hlo import Array, Instruction, read_program
from bert_lamb.planning.schedule import Step, schedule

KINDS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

Groups = tuple[tuple[int, ...], ...]

_OPCODE = re.compile(rf"(?P<kind>{'|'.join(KINDS)})(?P<start>-start)?")
_LISTED = re.compile(r"\b(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"\breplica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
# mesh['a'=8,'b'=4], device_ids=(...) {'b','a':(2)4}: the axes of the group, or parts of axes.
_MESH = re.compile(
    r"\breplica_groups=mesh\[([^\]]*)\](?:, ?device_ids=\((?P<ids>.*?)\)(?= \{))?"
    r"(?: \{(?P<spanned>[^}]*)\})?"
)
_MESH_AXIS = re.compile(r"'?([^'=,]+)'?=(\d+)")
_SPANNED = re.compile(r"'?([^':,]+)'?(?::\((\d+)\)(\d+))?(?:,|$)")
_PERMUTED = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_CHAIN = re.compile(r'\bchain_id="?(\w+)')
_CHAIN_START = re.compile(r'"async_collective_fusion_config":\{"flag_start":"-1"')
# What hands the handle of a running operation on without waiting for it.
_PASSED_ON = ("get-tuple-element", "tuple", "bitcast", "optimization-barrier")
_UNIT = 1024.0


@dataclass(frozen=True)
class Collective:
    """One collective operation of a compiled program.

    A reduction that the compiler split into a start and a done, or spread over a chain of fusions
    that compute something else beside it (TPU), is one.

    Attributes:
        kind: one of `KINDS`.
        dtypes: element types of the operands, each once.
        widened: whether the compiler reduces in a wider type than it was asked for, as XLA does
            for bf16 on CPUs; `dtypes` and sizes are then those of the wider type.
        operand_bytes: what goes in, on one device.
        result_bytes: what comes out, on one device.
        group_size: devices that take part in one group; None where the text does not say it in
            a form that is known here.
        group_count: how many groups there are.
        groups: the devices of each, as places in the program's mesh; empty where `group_size` is
            None.
        axes: the mesh axes over which a group extends, in the mesh's order; None without a mesh,
            or if the groups are not those of whole axes.
        times: how often it runs in one run of the program; None inside a loop of unknown length.
        loops: names of the loops around it, the outermost first.
        conditional: whether it stands in a branch that may not be taken.
        computation: the name of the computation in which it stands.
        name: of the instruction.
        op_name: the path that JAX gave it.
        asynchronous: whether other instructions can run between its start and its end.
        start: its place in the schedule, comparable to `Step.place`; the first number is the
            place in the entry computation.
        done: the place of its end; `start` if it is not asynchronous, None if the end is not in
            the same computation.
        during: what is scheduled between start and end.
        backward_before: matrix products of the backward pass scheduled before `start`; those of
            a loop's body count once.
        backward_after: those scheduled after `start`. The rest of the backward pass can hide an
            asynchronous collective.
    """

    kind: str
    dtypes: tuple[str, ...]
    widened: bool
    operand_bytes: int
    result_bytes: int
    group_size: int | None
    group_count: int | None
    groups: Groups = field(repr=False, compare=False)
    axes: tuple[str, ...] | None
    times: int | None
    loops: tuple[str, ...]
    conditional: bool
    computation: str
    name: str
    op_name: str
    asynchronous: bool
    start: tuple[int, ...]
    done: tuple[int, ...] | None
    during: tuple[Step, ...] = field(repr=False, compare=False)
    backward_before: int
    backward_after: int

    @property
    def bytes(self) -> int:
        """The larger of operand and result: the array that is reduced, gathered or exchanged."""
        return max(self.operand_bytes, self.result_bytes)

    @property
    def products_during(self) -> int:
        """Matrix products scheduled between start and end; those of a loop's body count once."""
        return sum(step.matrix_product for step in self.during)


def collectives(text: str, mesh_shape: Mapping[str, int] | None = None) -> list[Collective]:
    """Finds the collectives of a compiled program, in scheduled order.

    Args:
        text: what `jax.stages.Compiled.as_text` returns.
        mesh_shape: axis sizes by name, in the mesh's order (`mesh.shape`), of the mesh for which
            the program was compiled.

    Raises:
        ValueError: if the text is not that of a compiled program, or the mesh has another number
            of devices.
    """
    program = read_program(text)
    sizes = dict(mesh_shape or {})
    if sizes and math.prod(sizes.values()) != program.devices:
        raise ValueError(
            f"the mesh {sizes} has {math.prod(sizes.values())} devices, the program is compiled "
            f"for {program.devices}; pass the shape of the mesh it was compiled for"
        )
    steps = schedule(program)
    places = [step.place for step in steps]
    backward = [step.place for step in steps if step.matrix_product and step.backward]
    found = []
    for appearances in _appearances(steps):
        first = appearances[0]
        start, done = _extent(appearances)
        during: Sequence[Step] = ()
        if done is not None:
            # Behind everything that start calls; nothing is, if start is done as well.
            low = bisect.bisect_left(places, (*start.place, math.inf))
            during = steps[low : bisect.bisect_left(places, done.place)]
        before = bisect.bisect_left(backward, start.place)
        kind, operand_bytes, result_bytes = _sizes(first, start, done)
        groups = _groups(first.instruction, program.devices)
        found.append(
            Collective(
                kind=kind,
                dtypes=tuple(dict.fromkeys(array.dtype for array in _operands(first))),
                widened="promoted" in "".join(first.instruction.called.get("to_apply", ())),
                operand_bytes=operand_bytes,
                result_bytes=result_bytes,
                group_size=max(map(len, groups)) if groups else None,
                group_count=len(groups) if groups else None,
                groups=groups,
                axes=_spanned_axes(groups, sizes) if groups and sizes else None,
                times=start.times,
                loops=tuple(loop.instruction.name for loop in start.loops),
                conditional=start.conditional,
                computation=first.computation.name,
                name=first.instruction.name,
                op_name=first.instruction.op_name,
                asynchronous=done is not start,
                start=start.place,
                done=done.place if done else None,
                during=tuple(during),
                backward_before=before,
                backward_after=len(backward) - before,
            )
        )
    return found


def describe(found: Iterable[Collective]) -> str:
    """Lays collectives out as a table of plain text, one line for each group of equal ones.

    The columns are what is done over what (mesh axes, or groups x devices in a group), element
    types, size of one on one device, how many there are in the program, how often each runs, what
    all of them add up to in one run, where they stand, and where the first of them comes from. A
    type with a plus sign was widened by the compiler. `async 12` means that 12 matrix products are
    scheduled between start and end, the fewest of the group.
    """
    groups: dict[tuple, list[Collective]] = {}
    for one in found:
        key = (
            one.kind, one.axes, one.group_size, one.group_count, one.dtypes, one.widened,
            one.bytes, one.times, bool(one.loops), one.conditional, one.asynchronous,
        )  # fmt: skip
        groups.setdefault(key, []).append(one)
    if not groups:
        return "no collectives"
    header = ("collective", "over", "type", "bytes", "count", "runs", "total", "where", "", "from")
    rows = [header, *(_row(group) for group in groups.values())]
    right = {"bytes", "count", "runs", "total"}
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = (
        "  ".join(
            cell.rjust(width) if title in right else cell.ljust(width)
            for title, cell, width in zip(header, row, widths, strict=True)
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def _row(group: Sequence[Collective]) -> tuple[str, ...]:
    one = group[0]
    over = "?" if one.group_size is None else f"{one.group_count} x {one.group_size}"
    total = None if one.times is None else sum(each.bytes * (each.times or 0) for each in group)
    where = ["loop" if one.loops else "entry", *(["maybe"] if one.conditional else [])]
    overlap = f"async {min(each.products_during for each in group)}"
    return (
        one.kind,
        "+".join(one.axes) if one.axes else over,
        "+".join(one.dtypes) + ("+" if one.widened else ""),
        _readable(one.bytes),
        str(len(group)),
        "?" if one.times is None else str(one.times),
        "?" if total is None else _readable(total),
        " ".join(where),
        overlap if one.asynchronous else "",
        one.op_name.removeprefix("jit(").partition("/")[2] or one.name,
    )


def _readable(size: int) -> str:
    """Writes a number of bytes with a binary unit and three digits or more."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < _UNIT or unit == "TiB":
            break
        value /= _UNIT
    return f"{size} B" if unit == "B" else f"{value:.4g} {unit}"


def _appearances(steps: Iterable[Step]) -> list[list[Step]]:
    """Groups the steps that are collectives: those of one chain of fusions are one."""
    found: list[list[Step]] = []
    chains: dict[str, list[Step]] = {}
    for step in steps:
        if not _OPCODE.fullmatch(step.instruction.opcode):
            continue
        chain = _CHAIN.search(step.instruction.attributes)
        if not chain:
            found.append([step])
        elif _CHAIN_START.search(step.instruction.attributes) or chain[1] not in chains:
            chains[chain[1]] = [step]
            found.append(chains[chain[1]])
        else:
            chains[chain[1]].append(step)
    return found


def _extent(appearances: Sequence[Step]) -> tuple[Step, Step | None]:
    """Finds the steps at which a collective starts and is done; the same one if synchronous."""
    start = _outermost(appearances[0])
    if len(appearances) > 1:
        return start, _outermost(appearances[-1])
    return (start, _done(start)) if start.instruction.opcode.endswith("-start") else (start, start)


def _outermost(step: Step) -> Step:
    """Climbs out of fusions and asynchronous calls: what the schedule moves is those."""
    while step.caller and (
        step.caller.instruction.opcode == "fusion"
        or step.caller.instruction.opcode.endswith("-start")
    ):
        step = step.caller
    return step


def _done(start: Step) -> Step | None:
    """Finds the step of the same computation that waits for an asynchronous start."""
    handles = {start.instruction.name}
    following = start.computation.instructions[start.index + 1 :]
    for index, instruction in enumerate(following, start.index + 1):
        if handles.isdisjoint(instruction.operands):
            continue
        if instruction.opcode.endswith("-done"):
            return dataclasses.replace(start, instruction=instruction, index=index)
        if instruction.opcode.endswith("-update") or instruction.opcode in _PASSED_ON:
            handles.add(instruction.name)
    return None


def _operands(step: Step) -> list[Array]:
    by_name = step.computation.by_name
    given = (by_name.get(name) for name in step.instruction.operands)
    return [array for instruction in given if instruction for array in instruction.arrays]


def _sizes(first: Step, start: Step, done: Step | None) -> tuple[str, int, int]:
    """Finds (kind, operand bytes, result bytes) of a collective."""
    opcode = _OPCODE.fullmatch(first.instruction.opcode)
    assert opcode is not None
    kind = opcode["kind"]
    operand = sum(array.bytes for array in _operands(first))
    if not opcode["start"]:
        result = first.instruction.bytes
    else:  # the type of a start may hold its operands as well
        result = done.instruction.bytes if done else operand
    fused = start.instruction.opcode == "fusion" and start is done
    if fused and kind == "all-reduce" and start.instruction.bytes < result:
        # TPU: a sum of which every device keeps its part only, made of a sum and a slice.
        return "reduce-scatter", operand, start.instruction.bytes
    return kind, operand, result


def _groups(instruction: Instruction, devices: int) -> Groups:
    """Reads which devices communicate with which; empty where the form is not known here."""
    text = instruction.attributes
    iota = _IOTA.search(text)
    if iota:
        ids = _permuted(iota[2], iota[3])
        return tuple(map(tuple, ids.reshape(_integers(iota[1])[0], -1).tolist()))
    mesh = _MESH.search(text)
    if mesh:
        return _groups_of_axes(mesh)
    listed = _LISTED.search(text)
    if not listed:
        return ()
    rows = tuple(tuple(map(int, row.split(","))) for row in re.findall(r"\{([\d,]+)\}", listed[1]))
    if "source_target_pairs" in listed[0]:
        return _connected(rows)
    return rows or (tuple(range(devices)),)


def _integers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _permuted(dims: str, order: str | None) -> np.ndarray:
    """Returns the numbers 0, 1, ... in a grid of `dims`, its axes put into `order`."""
    grid = np.arange(math.prod(_integers(dims))).reshape(_integers(dims))
    return grid.transpose(_integers(order)) if order else grid


def _groups_of_axes(mesh: re.Match) -> Groups:
    """Expands groups that are given as axes of a mesh of their own."""
    sizes = {name: int(size) for name, size in _MESH_AXIS.findall(mesh[1])}
    dims = tuple(sizes.values())
    permuted = _PERMUTED.fullmatch(mesh["ids"] or "")
    if permuted:
        ids = _permuted(permuted[1], permuted[2]).ravel()
    else:
        ids = np.array(_integers(mesh["ids"]) or range(math.prod(dims)))
    # Devices whose coordinates are equal but for the spanned (parts of) axes form a group.
    rest = dict(zip(sizes, np.indices(dims), strict=True))
    for name, before, size in _SPANNED.findall(mesh["spanned"] or ""):
        if name not in sizes:
            return ()
        extent = int(size or sizes[name])
        stride = sizes[name] // (int(before or 1) * extent)
        rest[name] = rest[name] - rest[name] // stride % extent * stride
    keys = np.ravel_multi_index(tuple(rest.values()), dims).ravel()
    return tuple(tuple(ids[keys == key].tolist()) for key in np.unique(keys))


def _connected(pairs: Iterable[tuple[int, ...]]) -> Groups:
    """Joins the devices that pairs connect, directly or through others."""
    group: dict[int, set[int]] = {}
    for source, target in pairs:
        joined = group.get(source, {source}) | group.get(target, {target})
        group.update(dict.fromkeys(joined, joined))
    return tuple(sorted({tuple(sorted(members)) for members in group.values()}))


def _spanned_axes(groups: Groups, sizes: Mapping[str, int]) -> tuple[str, ...] | None:
    """Finds the mesh axes along which the members of each group differ."""
    ids = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    members = {frozenset(group) for group in groups}
    for count in range(len(sizes) + 1):
        for spanned in itertools.combinations(range(len(sizes)), count):
            last = np.moveaxis(ids, spanned, range(-count, 0)) if count else ids
            size = math.prod(ids.shape[axis] for axis in spanned)
            if {frozenset(row) for row in last.reshape(-1, size).tolist()} == members:
                return tuple(name for axis, name in enumerate(sizes) if axis in spanned)
    return None
