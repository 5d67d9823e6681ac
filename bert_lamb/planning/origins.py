"""Which of this package's files an instruction of a compiled program comes from.

JAX hands the call stack of every operation to the compiler, which writes it as tables of files,
places and frames behind the first line of the program; an instruction names its innermost frame.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import bert_lamb
from bert_lamb.planning.hlo import Instruction

_FILE = re.compile(r'^(\d+) "(.*)"$')
_PLACE = re.compile(r"^(\d+) \{file_name_id=(\d+) ")
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?\}")
_OF_INSTRUCTION = re.compile(r"\bstack_frame_id=(\d+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_PACKAGE = f"{Path(bert_lamb.__file__).parent.as_posix()}/"


def read_origins(text: str) -> Mapping[int, tuple[str, ...]]:
    """Reads the files of every frame.

    Args:
        text: of a compiled program.

    Returns:
        For each frame the files of its stack, the innermost first: those of this package relative
        to its folder, such as "model/attention.py", others whole. Empty without such tables.
    """
    tables: dict[str, list[str]] = {name: [] for name in _TABLES}
    table: list[str] | None = None
    for line in text.splitlines():
        if line in tables:
            table = tables[line]
        elif line.startswith(("ENTRY", "%")):
            break
        elif table is not None:
            table.append(line)
    files = {int(f[1]): f[2].removeprefix(_PACKAGE) for f in map(_FILE.match, tables[_TABLES[0]])
             if f}  # fmt: skip
    places = {int(f[1]): int(f[2]) for f in map(_PLACE.match, tables["FileLocations"]) if f}
    stacks: dict[int, tuple[str, ...]] = {}
    for found in filter(None, map(_FRAME.match, tables["StackFrames"])):
        # Frames are counted from 1 and their parents from 0, of which 0 is none.
        parent = int(found[3] or 1) - 1
        file = files.get(places.get(int(found[2]), 0), "")
        stacks[int(found[1])] = (file, *stacks.get(parent, ()))
    return stacks


def origin(instruction: Instruction, stacks: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the files of an instruction's stack, the innermost first; empty if unknown."""
    found = _OF_INSTRUCTION.search(instruction.attributes)
    return stacks.get(int(found[1]), ()) if found else ()
