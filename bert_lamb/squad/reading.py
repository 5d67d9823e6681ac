"""SQuAD files and TFDS data sets, read and checked before anything is paid for."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bert_lamb.data.corpus.packed import open_unpacked
from bert_lamb.data.errors import DataError
from bert_lamb.squad.answers import locate
from bert_lamb.squad.dataset import Dataset, Paragraph, Question, Version, check_version
from bert_lamb.squad.tfds import tfds_examples

_TFDS = "tfds:"
_KINDS = {
    dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "true or false",
}  # fmt: skip


def read_dataset(source: str, version: str | None = None) -> Dataset:
    """Reads a SQuAD data set.

    Args:
        source: path or address (gs://, https://) of a JSON file of the official form, plain or
            packed (.gz .xz .zst .bz2); or tfds:squad/v1.1 or tfds:squad/v2.0, prepared as
            array_record, with :VERSION, @SPLIT and ?data_dir=DIR as `bert-lamb data` takes them.
        version: "1.1" or "2.0" to insist on one; None takes what the data are.

    Returns:
        The data set. Answers whose place is wrong are in it, with their fault.

    Raises:
        DataError: if it cannot be read, holds something of another type than expected, no question,
            the same question id twice, or is of another `version`; names the place in the file,
            and the question where there is one.
    """
    if source.startswith(_TFDS):
        content: Any = {"data": _articles(tfds_examples(source.removeprefix(_TFDS)))}
    else:
        content = read_json(source)
    try:
        found = _read(content)
    except _FaultError as fault:
        raise DataError(f"{source}: {fault}") from None
    if not found.questions:
        raise DataError(f"{source}: holds no question; expected a SQuAD file")
    kind: Version = "2.0" if found.sign else "1.1"
    why = found.sign or "it has no 'is_impossible' and every question an answer"
    kind = check_version(kind, version, why, source)
    return Dataset(source, kind, tuple(found.paragraphs), tuple(found.questions))


def read_json(path: str) -> Any:
    """Returns the content of a JSON file, local or remote, plain or packed.

    Raises:
        DataError: if it cannot be read or is not JSON.
    """
    try:
        with open_unpacked(path) as stream:
            return json.loads(stream.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, byte {error.start}: not UTF-8 ({error.reason}); convert the file"
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: not JSON ({error}); expected a file of the official form"
        ) from error


def _articles(examples: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Puts examples of single questions into the form of the files; contexts are shared again."""
    contexts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for example in examples:
        key = (example.pop("title"), example.pop("context"))
        contexts.setdefault(key, []).append(example)
    return [
        {"title": title, "paragraphs": [{"context": context, "qas": qas}]}
        for (title, context), qas in contexts.items()
    ]


class _FaultError(ValueError):
    """Something that is not of the official form; the message begins with the place in the file."""


@dataclass
class _Found:
    """What was read so far, and what it says of the version."""

    paragraphs: list[Paragraph] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    sign: str = ""  # of version 2.0


def _read(content: Any) -> _Found:
    found = _Found()
    _expect(content, dict, "the whole")
    for a, article in enumerate(_member(content, "data", list, "")):
        place = f"data[{a}]"
        _expect(article, dict, place)
        title = article.get("title")
        _expect("" if title is None else title, str, f"{place}.title")
        for p, paragraph in enumerate(_member(article, "paragraphs", list, place)):
            _add_paragraph(found, paragraph, title or "", f"{place}.paragraphs[{p}]")
    return found


def _add_paragraph(found: _Found, paragraph: Any, title: str, place: str) -> None:
    _expect(paragraph, dict, place)
    context = _member(paragraph, "context", str, place)
    number = len(found.paragraphs)
    found.paragraphs.append(Paragraph(title, context))
    for q, qa in enumerate(_member(paragraph, "qas", list, place)):
        inside = f"{place}.qas[{q}]"
        id = _member(_expect(qa, dict, inside), "id", str, inside)
        if id in found.places:
            raise _FaultError(
                f"{inside}: question id {id!r} is also that of {found.places[id]}; ids have to "
                "differ, since predictions are filed by them"
            )
        found.places[id] = inside
        question, sign = _question(qa, id, context, number, f"{inside} (id {id!r})")
        found.questions.append(question)
        found.sign = found.sign or sign


def _question(
    qa: dict[str, Any], id: str, context: str, paragraph: int, place: str
) -> tuple[Question, str]:
    """Returns a question, and what shows that its data set is of version 2.0."""
    text = _member(qa, "question", str, place)
    impossible = qa.get("is_impossible")
    if impossible is not None:
        _expect(impossible, bool, f"{place}.is_impossible")
    labelled = qa.get("answers") is not None
    entries = _expect(qa["answers"], list, f"{place}.answers") if labelled else []
    answers = []
    for i, entry in enumerate(entries):
        inside = f"{place}.answers[{i}]"
        _expect(entry, dict, inside)
        answer = _member(entry, "text", str, inside)
        answers.append(locate(context, answer, _member(entry, "answer_start", int, inside)))
    if impossible and answers:
        raise _FaultError(
            f"{place}: is_impossible is true, but there are answers; delete the one or the other"
        )
    if impossible is False and labelled and not answers:
        raise _FaultError(
            f"{place}: is_impossible is false, but 'answers' is empty; set it to true, or leave "
            "'answers' out of a file that is not labelled"
        )
    sign = ""
    if impossible is not None:
        sign = f"question {id!r} has 'is_impossible'"
    elif labelled and not answers:
        sign = f"question {id!r} has no answer"
    return Question(id, text, paragraph, tuple(answers), labelled or bool(impossible)), sign


def _member(value: dict[str, Any], key: str, kind: type, place: str) -> Any:
    if key not in value:
        keys = ", ".join(map(repr, value)) or "no keys"
        raise _FaultError(
            f"{place or 'the whole'}: no key {key!r}, expected {_KINDS[kind]}; it has {keys:.120}"
        )
    return _expect(value[key], kind, f"{place}.{key}" if place else key)


def _expect(value: Any, kind: type, place: str) -> Any:
    if type(value) is not kind:
        raise _FaultError(f"{place}: {value!r:.60}, expected {_KINDS[kind]}")
    return value
