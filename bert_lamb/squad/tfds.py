"""SQuAD as TensorFlow Datasets prepares it, read without TensorFlow."""

from collections.abc import Iterator
from typing import Any

from bert_lamb.data.corpus.tfds import TfdsSplit, open_tfds
from bert_lamb.data.errors import DataError


def tfds_examples(source: str) -> Iterator[dict[str, Any]]:
    """Yields questions in the form of the entries of `qas`, with title and context.

    Args:
        source: NAME[/CONFIG][:VERSION][@SPLIT][?data_dir=DIR], as in squad/v2.0@validation.

    Raises:
        DataError: if the data set is not prepared, not as array_record, or has other features.
    """
    for split in open_tfds(source, on_error="error", text_field="context"):
        yield from _read(split, source)


def _read(split: TfdsSplit, source: str) -> Iterator[dict[str, Any]]:
    missing = {"id", "title", "context", "question", "answers"} - set(split.features)
    if missing:
        raise DataError(
            f"tfds:{source}: has no feature {', '.join(sorted(missing))}; expected those of "
            "squad/v1.1 or squad/v2.0"
        )
    for number, example in split.examples():
        place = f"{split.file}, example {number}"
        try:
            yield _question(example, place)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{place}: cannot be read as a question of squad/v1.1 or squad/v2.0 "
                f"({error!r:.200}); prepare the data set again"
            ) from error


def _question(example: dict[str, Any], place: str) -> dict[str, Any]:
    answers = example["answers"]
    pairs = zip(answers["text"], answers["answer_start"], strict=True)
    question: dict[str, Any] = {
        key: _text(example[key], place) for key in ("id", "title", "context", "question")
    }
    question["answers"] = [{"text": _text(t, place), "answer_start": int(s)} for t, s in pairs]
    if "is_impossible" in example:
        question["is_impossible"] = bool(example["is_impossible"])
    return question


def _text(value: Any, place: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{place}: not UTF-8 ({error}); prepare the data set again") from error
    return str(value)
