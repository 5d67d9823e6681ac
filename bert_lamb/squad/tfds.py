"""SQuAD as TensorFlow Datasets prepares it, read without TensorFlow."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from bert_lamb.data.corpus.tfds import TfdsSplit, open_tfds
from bert_lamb.data.errors import DataError

_AT_ONCE = 64


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
    with warnings.catch_warnings():  # of TFDS and protobuf about each other's interfaces
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds

        features = tfds.builder_from_directory(split.folder).info.features
    missing = {"id", "title", "context", "question", "answers"} - set(features)
    if missing:
        raise DataError(
            f"tfds:{source}: has no feature {', '.join(sorted(missing))}; expected those of "
            "squad/v1.1 or squad/v2.0"
        )
    for number, record in _records(split):
        place = f"{split.file}, example {number}"
        try:
            yield _question(features.deserialize_example_np(record), place)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{place}: cannot be read as a question of squad/v1.1 or squad/v2.0 "
                f"({error!r:.200}); prepare the data set again"
            ) from error


def _records(split: TfdsSplit) -> Iterator[tuple[int, bytes]]:
    """Yields the numbered records of a stretch of a shard."""
    from array_record.python.array_record_module import ArrayRecordReader

    stop = split.skip + split.take
    try:
        reader = ArrayRecordReader(split.file)
        try:
            for first in range(split.skip, stop, _AT_ONCE):
                numbers = list(range(first, min(first + _AT_ONCE, stop)))
                yield from zip(numbers, reader.read(numbers), strict=True)
        finally:
            with suppress(RuntimeError):  # of a damaged shard; a worse error is on its way
                reader.close()
    except (RuntimeError, ValueError, IndexError) as error:
        said = " ".join(str(error).split()) or "cut short"
        raise DataError(
            f"{split.file}: cannot be read ({said:.200}); prepare the data set again"
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
