"""Data sets of one or two texts with a class or a number each."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.glue.tasks import Task

_SHOWN = 5
_QUOTED = 12  # the columns of MNLI


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as it was read.

    Attributes:
        name: the path it came from.
        task: with its labels, also where the file told them.
        columns: names in the file's header, or numbers of its fields where it has none.
        ids: of the examples: those of the file, or their numbers from 0. [N]
        texts: the first or only text of each. [N]
        pairs: the second text of each, None where the task has one text. [N]
        labels: number of the label in `task.labels`, int32, or of a regression the number itself,
            float32; None where the file is not labelled. Cannot be written to. [N]
        faults: of each line that was left out; line and cause.
        left_out: examples that `without` took out.
    """

    name: str
    task: Task
    columns: tuple[str, ...]
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: np.ndarray | None
    faults: tuple[str, ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def blank(self) -> tuple[str, ...]:
        """Ids of the examples with a text that is empty or white space."""
        seconds = self.texts if self.pairs is None else self.pairs
        both = zip(self.ids, self.texts, seconds, strict=True)
        return tuple(id for id, a, b in both if not a.strip() or not b.strip())

    def require_labels(self) -> np.ndarray:
        """Returns the labels.

        Raises:
            DataError: if the data set has none; names the columns it has.
        """
        if self.labels is None:
            raise DataError(
                f"{self.name}: no column {self.task.label!r} with labels, which are needed here; "
                f"it has {quoted(self.columns)}; a file without labels can only be "
                "predicted"
            )
        return self.labels

    def without(self, other: "Dataset") -> "Dataset":
        """Returns the data set without the examples whose texts are also in another one.

        msr_paraphrase_train.txt holds all pairs of MRPC's dev.tsv: who trains on the one and scores
        on the other has to take them out.

        Raises:
            DataError: if nothing would be left.
        """
        theirs = set(other._examples())
        kept = [n for n, example in enumerate(self._examples()) if example not in theirs]
        if len(kept) == len(self):
            return self
        if not kept:
            raise DataError(
                f"{self.name}: all of its {len(self):,} examples are also in {other.name}; name "
                "another file to train on"
            )
        return replace(
            self,
            ids=tuple(self.ids[n] for n in kept),
            texts=tuple(self.texts[n] for n in kept),
            pairs=None if self.pairs is None else tuple(self.pairs[n] for n in kept),
            labels=None if self.labels is None else frozen(self.labels[kept]),
            left_out=self.left_out + len(self) - len(kept),
        )

    def first(self, number: int) -> "Dataset":
        """Returns the data set with its first examples only; 0 takes all."""
        if not number:
            return self
        return replace(
            self,
            ids=self.ids[:number],
            texts=self.texts[:number],
            pairs=None if self.pairs is None else self.pairs[:number],
            labels=None if self.labels is None else frozen(self.labels[:number].copy()),
        )

    def _examples(self) -> list[tuple[str, str]]:
        return list(zip(self.texts, self.pairs or [""] * len(self), strict=True))

    def describe(self) -> str:
        """Returns counts and faults in lines."""
        kind = "one text" if self.pairs is None else "two texts"
        lines = [f"{self.task.name}: {len(self):,} examples of {kind}", self._describe_labels()]
        if self.blank:
            lines.append(f"{len(self.blank):,} examples with an empty text: {shown(self.blank)}")
        if self.left_out:
            lines.append(f"{self.left_out:,} examples left out that are also in another set")
        if self.faults:
            lines.append(f"{len(self.faults):,} lines left out: {shown(self.faults, '; ')}")
        return "\n".join(lines)

    def _describe_labels(self) -> str:
        if self.labels is None:
            return "not labelled"
        if self.task.regression:
            low, high = self.labels.min(), self.labels.max()
            mean, deviation = self.labels.mean(dtype=np.float64), self.labels.std(dtype=np.float64)
            return (
                f"labels from {low:g} to {high:g}, mean {mean:.3f}, standard deviation "
                f"{deviation:.3f}"
            )
        names = self.task.known_labels
        counts = np.bincount(self.labels, minlength=len(names)).tolist()
        each = [
            f"{name} {count:,} ({count / len(self):.1%})"
            for name, count in zip(names, counts, strict=True)
        ]
        return f"labels: {', '.join(each)}"


def frozen(array: np.ndarray) -> np.ndarray:
    """Makes an array one that cannot be written to, and returns it."""
    array.setflags(write=False)
    return array


def shown(values: Iterable[str], separator: str = ", ", most: int = _SHOWN) -> str:
    """Returns the first few of some values, for a message."""
    values = list(values)
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return separator.join(values[:most]) + more


def quoted(values: Iterable[str]) -> str:
    """Returns the first of some names in quotation marks and of bounded length."""
    return shown((f"{value!r:.60}" for value in values), most=_QUOTED)
