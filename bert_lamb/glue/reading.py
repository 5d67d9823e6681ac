"""Tables of texts and labels, read strictly.

GLUE's tables are lines of fields between tabs. A quotation mark is a letter like any other,
although readers of CSV take it for the beginning of a field and swallow lines by it.
"""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import numpy as np

from bert_lamb.data.corpus.packed import PACKINGS, open_unpacked
from bert_lamb.data.corpus.remote import find_remote, is_remote
from bert_lamb.data.errors import DataError
from bert_lamb.glue.dataset import Dataset, frozen, quoted
from bert_lamb.glue.tasks import Task

_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_FEW_LABELS = 20  # so many may be found whatever the number of examples


def find_file(folder: str, task: Task, split: str) -> str:
    """Returns the file of a split in a task's folder, plain or packed.

    Args:
        folder: local or remote, as GLUE's archives unpack.
        task: whose names of files are used.
        split: train, dev or test; dev_matched and so on for MNLI.

    Raises:
        DataError: if there is none; names what was looked for.
    """
    names = [f"{split}.tsv", *(name for other, name in task.other_files if other == split)]
    there = _files(folder)
    for name in names:
        for ending in ("", *PACKINGS):
            if f"{name}{ending}" in there:
                return there[f"{name}{ending}"]
    raise DataError(
        f"{folder}: no file {' or '.join(names)}, plain or packed, for the split {split!r} of "
        f"{task.name}; check the folder, or name the file"
    )


def _files(folder: str) -> dict[str, str]:
    """Returns the paths of a folder's files by name; none where it is no folder."""
    if not is_remote(folder):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return {name: os.path.join(folder, name) for name in names}
    paths, is_folder = find_remote(folder, recursive=False)
    return {PurePosixPath(path).name: path for path in paths if is_folder}


def read_dataset(source: str, task: Task, *, skip_faulty: bool = False) -> Dataset:
    """Reads a table.

    Columns are found by the names in the header; all others are ignored. A file without the label's
    column is read as one without labels. Texts may be empty. What a field holds is kept as it is,
    quotation marks and spaces too.

    Args:
        source: path or address (gs://, https://), plain or packed (.gz .xz .zst .bz2).
        task: what to look for. Where its labels are not known, they are taken from this file:
            whole numbers by value, others by letters.
        skip_faulty: leave out lines with a wrong number of fields, an unknown label or bytes that
            are not UTF-8, and count them, instead of stopping. The first published form of QQP has
            some.

    Returns:
        The data set; its `task` knows the labels, and is the one for the other files.

    Raises:
        DataError: if it cannot be read, lacks a column, holds no example, or has a faulty line;
            names file, line, what was found and what was expected.
    """
    lines = _lines(source)
    number, first = next(lines, (0, b""))
    if not number:
        raise DataError(f"{source}: empty; expected a table of {task.name}")
    head = _head(source, first, task)
    table = _Table(source, task, head, {name: n for n, name in enumerate(task.labels or ())})
    if head.is_bare:
        table.add(number, first, skip_faulty)
    for number, line in lines:
        table.add(number, line, skip_faulty)
    return table.dataset()


def read_predictions(path: str, dataset: Dataset) -> np.ndarray:
    """Reads predictions as `writing.write_predictions` writes them.

    Args:
        path: of a TSV with the columns index and prediction, in any order of lines; local or
            remote, plain or packed.
        dataset: whose examples are predicted.

    Returns:
        Predictions in the order of the data set: numbers of labels, int32, or of a regression
        float32. [N]

    Raises:
        DataError: if it is anything else, or an example is missing, twice there or unknown.
    """
    task = dataset.task
    form = replace(
        task, name=f"predictions for {task.name}", texts=("index",), label="prediction", id="",
        labels=() if task.regression else task.known_labels, limits=None, bare=None,
    )  # fmt: skip
    found = read_dataset(path, form)
    places = {id: n for n, id in enumerate(found.texts)}
    for what, ids in (
        ("predicted twice", [id for n, id in enumerate(found.texts) if places[id] != n]),
        (f"not in {dataset.name}", sorted(places.keys() - set(dataset.ids))),
        ("not predicted", [id for id in dataset.ids if id not in places]),
    ):
        if ids:
            raise DataError(
                f"{path}: {len(ids):,} indices {what}: {quoted(ids)}; expected one prediction for "
                f"each of the {len(dataset):,} examples"
            )
    return found.require_labels()[[places[id] for id in dataset.ids]]


@dataclass(frozen=True)
class _Head:
    """Where the parts of an example stand.

    Attributes:
        columns: names of all columns, or their numbers.
        texts, label, id: numbers of the fields.
        is_bare: whether the first line is an example.
    """

    columns: tuple[str, ...]
    texts: tuple[int, ...]
    label: int | None
    id: int | None
    is_bare: bool = False


class _FaultError(ValueError):
    """What is wrong with a line."""


@dataclass
class _Table:
    """What was read so far; `numbers` are those of the labels."""

    source: str
    task: Task
    head: _Head
    numbers: dict[str, int]
    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    pairs: list[str] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, number: int, line: bytes, skip_faulty: bool) -> None:
        try:
            fields = _fields(line)
            if len(fields) != len(self.head.columns):
                names = "" if self.head.is_bare else f" ({quoted(self.head.columns)})"
                raise _FaultError(
                    f"{len(fields)} fields, expected {len(self.head.columns)} between tabs{names}"
                )
            if self.head.label is not None:
                self.labels.append(self._label(fields[self.head.label]))
        except _FaultError as fault:
            if not skip_faulty:
                raise DataError(
                    f"{self.source}, line {number}: {fault}; mend the line, or take it out"
                ) from None
            self.faults.append(f"line {number}: {fault}")
            return
        self.ids.append(str(len(self.ids)) if self.head.id is None else fields[self.head.id])
        self.texts.append(fields[self.head.texts[0]])
        if len(self.head.texts) == 2:
            self.pairs.append(fields[self.head.texts[1]])

    def _label(self, text: str) -> float:
        if self.task.regression:
            return _score(text, self.task.limits)
        if self.task.labels is None and text and text == text.strip():
            return self.numbers.setdefault(text, len(self.numbers))
        if text not in self.numbers:
            known = quoted(self.numbers)
            expected = f"one of {known}" if known else "a name without white space around"
            raise _FaultError(f"label {text!r:.60}, expected {expected}")
        return self.numbers[text]

    def dataset(self) -> Dataset:
        if not self.texts:
            why = f"; first fault: {self.faults[0]}" if self.faults else ""
            raise DataError(f"{self.source}: a header but no example that can be used{why}")
        task, labels = self.task, None
        if self.head.label is not None:
            labels = np.array(self.labels, np.float32 if task.regression else np.int32)
            if task.labels is None:
                names = _sorted_labels(self.source, list(self.numbers), len(labels))
                places = {name: n for n, name in enumerate(names)}
                labels = np.array([places[name] for name in self.numbers], np.int32)[labels]
                task = replace(task, labels=names)
            frozen(labels)
        return Dataset(
            self.source,
            task,
            self.head.columns,
            tuple(self.ids),
            tuple(self.texts),
            tuple(self.pairs) if len(self.head.texts) == 2 else None,
            labels,
            tuple(self.faults),
        )


def _lines(source: str) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a file with their numbers from 1, without marks and line ends."""
    with open_unpacked(source) as stream:
        for number, line in enumerate(stream, 1):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, line.removeprefix(_BOM) if number == 1 else line


def _fields(line: bytes) -> list[str]:
    try:
        return line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        bad = line[error.start : error.end].hex(" ")
        raise _FaultError(f"byte {error.start}: {bad} is not UTF-8 ({error.reason})") from None


def _head(source: str, line: bytes, task: Task) -> _Head:
    """Finds the columns of a task in the first line.

    Raises:
        DataError: if one is missing or twice there, or the line is not a whole one.
    """
    try:
        names = _fields(line)
    except _FaultError as fault:
        raise DataError(f"{source}, line 1: {fault}; convert the file to UTF-8") from None
    missing = [name for name in task.texts if name not in names]
    bare = task.bare
    if missing and bare and len(names) == bare.fields:
        numbers = tuple(map(str, range(bare.fields)))
        return _Head(numbers, bare.texts, bare.label, None, is_bare=True)
    if any("\r" in name for name in names):
        raise DataError(
            f"{source}, line 1: carriage returns among the names of columns ({quoted(names)}); end "
            "lines with line feeds"
        )
    if missing:
        raise DataError(f"{source}, line 1: {_missing(names, missing, task)}")
    for name in (*task.texts, task.label, task.id):
        if names.count(name) > 1:
            raise DataError(
                f"{source}, line 1: {names.count(name)} columns {name!r}, expected one; rename the "
                "others"
            )
    places = {name: n for n, name in enumerate(names)}
    texts = tuple(places[name] for name in task.texts)
    return _Head(tuple(names), texts, places.get(task.label), places.get(task.id))


def _missing(names: list[str], missing: list[str], task: Task) -> str:
    what = f"no column {' nor '.join(map(repr, missing))}, expected a header of {task.name}"
    if task.bare:
        what += f", or {task.bare.fields} fields and no header"
    return f"{what}; it has {quoted(names)}; check the file and the task"


def _score(text: str, limits: tuple[float, float] | None) -> float:
    low, high = limits or (-math.inf, math.inf)
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    with np.errstate(over="ignore"):  # becomes infinite
        is_finite = np.isfinite(np.float32(value))
    if not (is_finite and low <= value <= high):
        expected = f"a number from {low:g} to {high:g}" if limits else "a finite number"
        raise _FaultError(f"label {text!r:.60}, expected {expected}")
    return value


def _sorted_labels(source: str, names: list[str], examples: int) -> tuple[str, ...]:
    """Puts labels into an order that does not depend on that of the lines.

    Raises:
        DataError: if there is one only, or too many to be classes.
    """
    if len(names) < 2:
        raise DataError(
            f"{source}: label {names[0]!r} in every line, expected two labels or more; check the "
            "label's column"
        )
    if len(names) > max(_FEW_LABELS, examples // 2):
        raise DataError(
            f"{source}: {len(names):,} labels in {examples:,} examples, which are no classes "
            f"({quoted(names)}); check the label's column, or ask for a regression"
        )
    if all(map(_WHOLE.fullmatch, names)):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
