"""What a build decides once everything was read: who is held out, dropped or lent to others."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from bert_lamb.data.building.duplicates import repeated_documents
from bert_lamb.data.building.gather import Gathered, Unit, read_hashes
from bert_lamb.data.building.make import HELDOUT, TRAIN, Task
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.report import SourceReport, source_report
from bert_lamb.data.corpus import Source
from bert_lamb.data.errors import DataError

_DONORS = 4


def plan(
    sources: Sequence[Source],
    units: Sequence[Unit],
    gathered: Sequence[Gathered],
    options: BuildOptions,
) -> tuple[list[Task], list[SourceReport]]:
    """Makes the tasks of the second stage, one for each block, and a report on each source.

    The documents of the corpus are numbered in the order of the sources. The last ones of each
    source are held out, and of equal documents the first is kept.

    Raises:
        DataError: if a source holds no text, or a record set would get too few documents.
    """
    offsets = [0, *accumulate(found.documents for found in gathered)]
    repeated = repeated_documents(map(read_hashes, gathered))
    tasks: list[Task] = []
    reports: list[SourceReport] = []
    train = held = 0
    for number, source in enumerate(sources):
        mine = [unit.number for unit in units if unit.source == number]
        begin, end = offsets[mine[0]], offsets[mine[-1] + 1]
        if begin == end:
            raise DataError(_no_text(source, [gathered[unit] for unit in mine]))
        heldout_from = end - round(options.heldout * (end - begin))
        again = _between(repeated, begin, end)
        reports.append(source_report(source, [gathered[unit] for unit in mine], len(again)))
        train += heldout_from - begin - int(np.sum(again < heldout_from))
        held += end - heldout_from - int(np.sum(again >= heldout_from))
        for unit in mine:
            for block in gathered[unit].blocks:
                first, last = (offsets[unit] + at for at in (block.first, block.last))
                dropped = _between(again, first, last + 1) - np.uint64(offsets[unit])
                tasks.append(
                    Task(
                        block=block,
                        unit=unit,
                        source=number,
                        offset=offsets[unit],
                        heldout_from=heldout_from - offsets[unit],
                        dropped=tuple(dropped.tolist()),
                        weight=source.weight,
                    )
                )
    _check_documents(train, held, sum(report.duplicates for report in reports), options)
    return tasks, reports


def choose_donors(
    tasks: Sequence[Task], units: Sequence[Unit], gathered: Sequence[Gathered]
) -> dict[str, tuple[tuple[int, str], ...]]:
    """Chooses documents of each record set that lend random second segments to lonely ones.

    Those are beginnings of documents in use, from anywhere in the corpus.

    Returns:
        For each record set, up to four documents by their numbers in the corpus.
    """
    found: dict[str, dict[int, str]] = {TRAIN: {}, HELDOUT: {}}
    kept = {unit.number: dict(gathered[unit.number].donors) for unit in units}
    for task in tasks:
        for number, text in kept[task.unit].items():
            inside = task.block.first <= number <= task.block.last and number not in task.dropped
            name = HELDOUT if number >= task.heldout_from else TRAIN
            if inside and len(found[name]) < _DONORS:
                found[name][task.offset + number] = text
    return {name: tuple(donors.items()) for name, donors in found.items()}


def _no_text(source: Source, gathered: Sequence[Gathered]) -> str:
    read = sum(found.reading["bytes"] for found in gathered)
    excluded = sum(found.excluded for found in gathered)
    why = f"all {excluded} documents excluded by title" if excluded else "all blank or skipped"
    return f"source {source.name!r}: no text in it ({read} bytes, {why}); check the files"


def _between(numbers: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Returns those of the ascending `numbers` that are in [begin, end)."""
    low, high = np.searchsorted(numbers, np.array([begin, end], np.uint64))
    return numbers[low:high]


def _check_documents(train: int, held: int, duplicates: int, options: BuildOptions) -> None:
    need = options.examples.min_documents
    if train < need:
        read = f"{train + held} read, {duplicates} duplicates, {held} held out"
        raise DataError(
            f"{train} document to train on ({read}): "
            f"next-sentence prediction needs at least {need}; divide the text into documents by "
            "blank lines, or add sources"
        )
    if options.heldout and held < need:
        raise DataError(
            f"heldout = {options.heldout}: holds out {held} of {train + held} documents, and "
            f"next-sentence prediction needs at least {need}; hold out more, or nothing"
        )
