"""One record: an unmasked example as bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.example import Example, Examples

_HEADER = struct.Struct("<BxH")
_LABEL, _SINGLE = 1, 2  # bits of the first byte


def id_dtype(vocab_size: int) -> np.dtype:
    """Returns the type that stores ids of a vocabulary: uint16 or uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


def pack(example: Example, dtype: np.dtype) -> bytes:
    """Encodes an example as one record."""
    single = example.ids_b is None
    header = _HEADER.pack(_LABEL * example.label | _SINGLE * single, len(example.ids_a))
    ids = (example.ids_a, () if example.ids_b is None else example.ids_b)
    return header + b"".join(np.array(segment, dtype).tobytes() for segment in ids)


def pack_all(examples: Examples, dtype: np.dtype) -> list[bytes]:
    """Encodes many examples, one record each; much faster than one at a time.

    Raises:
        DataError: if an id is too large for `dtype`.
    """
    largest = int(examples.ids.max(initial=0))
    if largest > np.iinfo(dtype).max:
        raise DataError(f"token id {largest}: expected at most {np.iinfo(dtype).max} for {dtype}")
    flags = _LABEL * examples.labels.astype(np.uint8) | _SINGLE * (not examples.has_pair)
    headers = np.zeros(len(examples), np.dtype([("flags", "u1"), ("zero", "u1"), ("a", "<u2")]))
    headers["flags"] = flags
    headers["a"] = examples.spans[:, 1] - examples.spans[:, 0]
    header = headers.tobytes()
    ids = np.asarray(examples.ids, dtype).tobytes()
    size = _HEADER.size
    places = (examples.spans * dtype.itemsize).tolist()
    return [
        header[i * size : (i + 1) * size] + ids[a:a_end] + ids[b:b_end]
        for i, (a, a_end, b, b_end) in enumerate(places)
    ]


@dataclass(frozen=True)
class Rows:
    """Unpacked records of a batch.

    Attributes:
        tokens: ids with special tokens, padded. int32 [B, T]
        lengths: tokens per row with special tokens. int32 [B]
        lengths_a: tokens of [CLS] a [SEP]; the whole row where there is no second segment.
            int32 [B]
        labels: of pairs: the second segment is from another document, or the two are swapped;
            0 where there is no second segment. int32 [B]
        has_pair: whether there is a second segment, hence a label to learn. bool [B]
    """

    tokens: np.ndarray
    lengths: np.ndarray
    lengths_a: np.ndarray
    labels: np.ndarray
    has_pair: np.ndarray


def unpack(
    records: Sequence[bytes],
    dtype: np.dtype,
    seq_length: int,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> Rows:
    """Decodes records into rows of [CLS] a [SEP] b [SEP] [PAD]... or [CLS] a [SEP] [PAD]...

    Args:
        records: B records as `pack` wrote them, at least one.
        dtype: type of the stored ids.
        seq_length: row length T; no record is longer.
        cls_id: id before the first segment.
        sep_id: id after either segment.
        pad_id: id of the rest of the row.

    Raises:
        DataError: for bytes that are no record of this format, or a record longer than a row.
    """
    size = np.array([len(record) for record in records])
    data = np.frombuffer(b"".join(records), np.uint8)
    start = np.cumsum(size) - size
    if size.min() < _HEADER.size:
        raise DataError(f"a record of {size.min()} bytes: damaged; make the records again")
    flags = data[start]
    has_pair = (flags & _SINGLE) == 0
    a = data[start + 2].astype(np.int32) | data[start + 3].astype(np.int32) << 8
    num_ids = (size - _HEADER.size) // dtype.itemsize
    lengths = (num_ids + np.where(has_pair, 3, 2)).astype(np.int32)
    _check(size, dtype, flags, a, num_ids, has_pair, lengths, seq_length)

    column = np.arange(seq_length)
    is_sep = (column == a[:, None] + 1) | (column == lengths[:, None] - 1)
    is_id = (column >= 1) & (column < lengths[:, None]) & ~is_sep
    tokens = np.full((len(records), seq_length), pad_id, np.int32)
    tokens[:, 0] = cls_id
    tokens[is_sep] = sep_id
    tokens[is_id] = payload(records, dtype)  # both run row by row, left to right
    return Rows(tokens, lengths, a + 2, (flags & _LABEL).astype(np.int32), has_pair)


def _check(
    size: np.ndarray,
    dtype: np.dtype,
    flags: np.ndarray,
    a: np.ndarray,
    num_ids: np.ndarray,
    has_pair: np.ndarray,
    lengths: np.ndarray,
    seq_length: int,
) -> None:
    """Raises DataError if a record is not one of this format, or longer than a row."""
    foreign = (flags > (_LABEL | _SINGLE)) | ((size - _HEADER.size) % dtype.itemsize != 0)
    foreign |= np.where(has_pair, a > num_ids, a != num_ids)
    if foreign.any():
        i = int(foreign.argmax())
        raise DataError(
            f"a record of {size[i]} bytes with flags {flags[i]}, {a[i]} ids in the first segment "
            f"and {num_ids[i]} in all: not of this format; make the records again, or use the "
            "version that made them"
        )
    if lengths.max() > seq_length:
        raise DataError(
            f"a record of {lengths.max()} tokens: expected at most seq_length = {seq_length}; use "
            "the seq_length of the records"
        )


def payload(records: Sequence[bytes], dtype: np.dtype) -> np.ndarray:
    """Returns the ids of all `records` in a row, both segments of each. `dtype` [n].

    [SEP] is among them where rows cross documents.
    """
    return np.frombuffer(b"".join([record[_HEADER.size :] for record in records]), dtype)
