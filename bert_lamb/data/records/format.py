"""One record: an unmasked example as bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.examples.pairs import SPECIALS_PER_ROW, Example

_HEADER = struct.Struct("<BxH")
_RANDOM_FLAG = 1


def id_dtype(vocab_size: int) -> np.dtype:
    """Returns the type that stores ids of a vocabulary: uint16 or uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


def pack(example: Example, dtype: np.dtype) -> bytes:
    """Encodes a pair as one record."""
    header = _HEADER.pack(_RANDOM_FLAG * example.is_random, len(example.ids_a))
    return header + np.array(example.ids_a + example.ids_b, dtype).tobytes()


@dataclass(frozen=True)
class Pairs:
    """Unpacked records of a batch.

    Attributes:
        tokens: ids with special tokens, padded. int32 [B, T]
        lengths: tokens per row with special tokens. int32 [B]
        lengths_a: tokens of [CLS] a [SEP]. int32 [B]
        is_random: int32 [B]
    """

    tokens: np.ndarray
    lengths: np.ndarray
    lengths_a: np.ndarray
    is_random: np.ndarray


def unpack(
    records: Sequence[bytes],
    dtype: np.dtype,
    seq_length: int,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> Pairs:
    """Decodes records into rows of [CLS] a [SEP] b [SEP] [PAD]...

    Args:
        records: B records as `pack` wrote them.
        dtype: type of the stored ids.
        seq_length: row length T; no record is longer.
        cls_id: id before the first segment.
        sep_id: id after either segment.
        pad_id: id of the rest of the row.
    """
    size = np.array([len(record) for record in records])
    data = np.frombuffer(b"".join(records), np.uint8)
    start = np.cumsum(size) - size
    a = data[start + 2].astype(np.int32) | data[start + 3].astype(np.int32) << 8
    lengths = ((size - _HEADER.size) // dtype.itemsize + SPECIALS_PER_ROW).astype(np.int32)

    column = np.arange(seq_length)
    is_sep = (column == a[:, None] + 1) | (column == lengths[:, None] - 1)
    is_id = (column >= 1) & (column < lengths[:, None]) & ~is_sep
    tokens = np.full((len(records), seq_length), pad_id, np.int32)
    tokens[:, 0] = cls_id
    tokens[is_sep] = sep_id
    tokens[is_id] = payload(records, dtype)  # both run row by row, left to right
    return Pairs(tokens, lengths, a + 2, (data[start] & _RANDOM_FLAG).astype(np.int32))


def payload(records: Sequence[bytes], dtype: np.dtype) -> np.ndarray:
    """Returns the ids of all `records` in a row, both segments of each. `dtype` [n]."""
    return np.frombuffer(b"".join(record[_HEADER.size :] for record in records), dtype)
