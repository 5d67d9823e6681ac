"""MaskedRows of pre-masked TFRecords, read and checked for their shape."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import check_seq_length
from bert_lamb.data.records.tf_example import decode_example
from bert_lamb.data.records.tfrecord import read_tfrecord

_OTHER_NAMES = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class MaskedRows:
    """MaskedRows of one file that follow one another; see the package for the features.

    Attributes:
        file: where they are from.
        first: number of the first of them in the file, from 1.
        input_ids, input_mask, segment_ids: int64 [B, T]
        masked_lm_positions, masked_lm_ids: int64 [B, P]
        masked_lm_weights: float32 [B, P]
        next_sentence_labels: int64 [B, 1]
    """

    file: str
    first: int
    input_ids: np.ndarray
    input_mask: np.ndarray
    segment_ids: np.ndarray
    masked_lm_positions: np.ndarray
    masked_lm_ids: np.ndarray
    masked_lm_weights: np.ndarray
    next_sentence_labels: np.ndarray

    def place(self, row: int) -> str:
        """Returns the file and the number of a row, for messages."""
        return f"{self.file}, record {self.first + row}"


FEATURES = tuple(f.name for f in fields(MaskedRows) if f.type is np.ndarray)


@dataclass(frozen=True)
class Layout:
    """The lengths that all rows of an import share.

    Attributes:
        seq_length: tokens per row T.
        max_predictions: slots for predictions per row P.
        origin: the record that set them.
    """

    seq_length: int
    max_predictions: int
    origin: str

    def check(self, features: dict[str, np.ndarray], place: str) -> None:
        """Raises DataError if a feature of a record is of another length."""
        for name, values in features.items():
            expected = self._length(name)
            if len(values) != expected:
                raise DataError(
                    f"{place}: {name} holds {len(values)} values, expected {expected} as in "
                    f"{self.origin}; import files of one length at a time"
                )

    def _length(self, name: str) -> int:
        if name == "next_sentence_labels":
            return 1
        return self.max_predictions if name.startswith("masked_lm_") else self.seq_length


def find_layout(files: Sequence[str]) -> Layout:
    """Returns the lengths of the first record.

    Raises:
        DataError: if there is no record, or the first is not of the published schema.
    """
    for file in files:
        for data in read_tfrecord(file):
            place = f"{file}, record 1"
            features = _features(data, place)
            seq_length = len(features["input_ids"])
            try:
                check_seq_length(seq_length)
            except DataError as error:
                raise DataError(f"{place}: {error}") from error
            return Layout(seq_length, len(features["masked_lm_positions"]), place)
    raise DataError(f"{', '.join(files[:5])}: no record in {len(files)} files; check the input")


def read_rows(file: str, layout: Layout) -> Iterator[MaskedRows]:
    """Yields the rows of a file, many at a time.

    Raises:
        DataError: if the file is damaged, or a record is not of the schema or of `layout`; names
            the record.
    """
    stream = read_tfrecord(file)
    first = 1
    while block := list(islice(stream, _ROWS_AT_ONCE)):
        rows: dict[str, list[np.ndarray]] = {name: [] for name in FEATURES}
        for i, data in enumerate(block):
            place = f"{file}, record {first + i}"
            features = _features(data, place)
            layout.check(features, place)
            for name, values in features.items():
                rows[name].append(values)
        yield MaskedRows(file, first, **{name: np.stack(values) for name, values in rows.items()})
        first += len(block)


def _features(data: bytes, place: str) -> dict[str, np.ndarray]:
    """Decodes the features of the schema; others are left out."""
    try:
        found = decode_example(data)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    found = {_OTHER_NAMES.get(name, name): values for name, values in found.items()}
    missing = [name for name in FEATURES if name not in found]
    if missing:
        raise DataError(
            f"{place}: no feature {', '.join(missing)} (the record has "
            f"{', '.join(sorted(found)) or 'none'}); expected the pre-masked records of Google's "
            "create_pretraining_data.py"
        )
    for name in FEATURES:
        expected = np.dtype(np.float32 if name == "masked_lm_weights" else np.int64)
        if found[name].dtype != expected:
            raise DataError(
                f"{place}: feature {name} holds {found[name].dtype} values, expected {expected}; "
                "write it as create_pretraining_data.py does"
            )
    return {name: found[name] for name in FEATURES}
