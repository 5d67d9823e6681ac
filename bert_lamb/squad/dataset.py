"""SQuAD data sets: questions on paragraphs, with answers that point into them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from bert_lamb.data.errors import DataError

Version = Literal["1.1", "2.0"]
VERSIONS: tuple[Version, ...] = ("1.1", "2.0")
_SHOWN = 5


@dataclass(frozen=True)
class Answer:
    """One annotator's answer.

    Attributes:
        text: as the data set gives it; the evaluation compares with this.
        start: its first character in the context as it is used; -1 if it is not there.
        fault: what is wrong with the place that the data set gives, "" where nothing is.
    """

    text: str
    start: int
    fault: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A context with the title of its article."""

    title: str
    context: str


@dataclass(frozen=True)
class Question:
    """A question on a paragraph.

    Attributes:
        id: unique in the data set.
        text: of the question.
        paragraph: number of its paragraph in the data set.
        answers: of all annotators; empty for a question without an answer.
        labelled: whether the data set says what the answer is, or that there is none.
    """

    id: str
    text: str
    paragraph: int
    answers: tuple[Answer, ...] = ()
    labelled: bool = True

    @property
    def has_answer(self) -> bool:
        """Whether an annotator gave an answer, as the official evaluation decides it."""
        return bool(self.answers)


@dataclass(frozen=True)
class Dataset:
    """A data set as it was read.

    Attributes:
        name: the path or TFDS name it came from.
        version: "1.1", where every question has an answer, or "2.0".
        paragraphs: in the order of the file.
        questions: in the order of the file.
    """

    name: str
    version: Version
    paragraphs: tuple[Paragraph, ...]
    questions: tuple[Question, ...]

    def context(self, question: Question) -> str:
        """Returns the raw context of a question."""
        return self.paragraphs[question.paragraph].context

    @cached_property
    def blank(self) -> tuple[str, ...]:
        """Ids of the questions whose context is empty or white space."""
        return tuple(q.id for q in self.questions if not self.context(q).strip())

    @cached_property
    def faults(self) -> dict[str, tuple[str, ...]]:
        """Ids of the questions with a faulty answer, by fault; an id for each such answer."""
        found: dict[str, list[str]] = {}
        for question in self.questions:
            for answer in question.answers:
                if answer.fault:
                    found.setdefault(answer.fault, []).append(question.id)
        return {fault: tuple(ids) for fault, ids in sorted(found.items())}

    def require_labels(self) -> None:
        """Checks that every question is labelled.

        Raises:
            DataError: naming the first question that is not.
        """
        for question in self.questions:
            if not question.labelled:
                raise DataError(
                    f"{self.name}: question {question.id!r} has no 'answers'; a data set with "
                    "answers is needed here, a file without them can only be predicted"
                )

    def describe(self) -> str:
        """Returns counts and faults in lines."""
        answers = Counter(bool(question.answers) for question in self.questions)
        unlabelled = sum(not question.labelled for question in self.questions)
        without = answers[False] - unlabelled
        titles = len({paragraph.title for paragraph in self.paragraphs})
        lines = [
            f"SQuAD v{self.version}: {titles:,} articles, {len(self.paragraphs):,} paragraphs, "
            f"{len(self.questions):,} questions",
            f"{answers[True]:,} questions with "
            f"{sum(len(q.answers) for q in self.questions):,} answers, {without:,} without"
            + (f", {unlabelled:,} not labelled" if unlabelled else ""),
        ]
        if self.blank:
            lines.append(f"{len(self.blank):,} questions on a blank context: {shown(self.blank)}")
        for fault, ids in self.faults.items():
            lines.append(f"{len(ids):,} answers: {fault}: {shown(ids)}")
        return "\n".join(lines)


def shown(ids: Sequence[str] | Iterable[str]) -> str:
    """Returns the first few ids, for a message."""
    ids = list(ids)
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


def check_version(found: Version, wanted: str | None, why: str, name: str) -> Version:
    """Returns the version of a data set.

    Args:
        found: what its content shows.
        wanted: what the user asked for; None takes what is found.
        why: what in its content shows it.
        name: of the data set, for the message.

    Raises:
        DataError: if the two differ, or `wanted` is no version.
    """
    if wanted is None:
        return found
    if wanted.removeprefix("v") not in VERSIONS:
        raise DataError(f"SQuAD version {wanted!r}: expected {' or '.join(VERSIONS)}")
    if wanted.removeprefix("v") != found:
        raise DataError(
            f"{name}: asked for as SQuAD v{wanted.removeprefix('v')}, but {why}, as in v{found}; "
            f"ask for {found}, or name another file"
        )
    return found
