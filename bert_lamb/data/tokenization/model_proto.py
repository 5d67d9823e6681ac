"""Reads what matters of a SentencePiece .model: its tokens, their types, and how it splits.

The file is a protocol buffer. The generated reader of the sentencepiece package asks for the newest
protobuf, with which other libraries of this project do not go together; a dozen fields are read
here instead. Checking them first also keeps damaged files away from the C++ code.

References:
    sentencepiece_model.proto (google/sentencepiece); protocol buffers' wire format.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from bert_lamb.data.errors import DataError

# Types of a piece.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, WORD, CHAR = range(1, 5)
SPACE_MARK = "\u2581"

_Value = int | float | bytes


@dataclass(frozen=True)
class Model:
    """Content of a .model.

    Attributes:
        pieces: tokens in the order of their ids.
        types: type of each piece (NORMAL to BYTE).
        kind: UNIGRAM, BPE, WORD or CHAR.
        identity: whether its normalizer leaves all characters as they are.
        words_apart: whether each word begins with U+2581 and no piece reaches into the next word.
    """

    pieces: tuple[str, ...]
    types: tuple[int, ...]
    kind: int
    identity: bool
    words_apart: bool


def parse_model(data: bytes, origin: str) -> Model:
    """Reads the bytes of a .model.

    Args:
        data: the file.
        origin: its name, for messages.

    Raises:
        DataError: if it is damaged or no such model, or if pieces are empty, repeated, or of an
            unknown type.
    """
    pieces: list[str] = []
    types: list[int] = []
    trainer: dict[int, _Value] = {}
    normalizer: dict[int, _Value] = {}
    try:
        for field, value in _fields(data):
            if field == 1:
                piece = dict(_fields(_bytes(value)))
                pieces.append(_bytes(piece[1]).decode("utf-8"))
                types.append(_integer(piece.get(3, NORMAL)))
            elif field == 2:
                trainer |= dict(_fields(_bytes(value)))
            elif field == 3:
                normalizer |= dict(_fields(_bytes(value)))
        kind = _integer(trainer.get(3, UNIGRAM))
        suffix = _integer(trainer.get(24, 0))
        charsmap = _bytes(normalizer.get(2, b""))
        prefix, extra, escape = (_integer(normalizer.get(field, 1)) for field in (3, 4, 5))
    except (ValueError, KeyError) as error:
        raise DataError(
            f"tokenizer {origin!r}: not a SentencePiece model, or damaged ({error}); expected a "
            ".model written by its trainer"
        ) from error
    _check(pieces, types, kind, origin)
    inside = any(SPACE_MARK in piece[1:] for piece in pieces)
    return Model(
        tuple(pieces),
        tuple(types),
        kind,
        identity=not charsmap,
        words_apart=not inside and not suffix and all((prefix, extra, escape)),
    )


def _check(pieces: list[str], types: list[int], kind: int, origin: str) -> None:
    if not pieces:
        raise DataError(f"tokenizer {origin!r}: holds no tokens; expected a SentencePiece .model")
    if kind not in (UNIGRAM, BPE, WORD, CHAR):
        raise DataError(
            f"tokenizer {origin!r}: model type {kind}, expected 1 (unigram) to 4 (char); "
            "train it anew"
        )
    seen: dict[str, int] = {}
    for id, (piece, type) in enumerate(zip(pieces, types, strict=True)):
        if not piece or type not in range(NORMAL, BYTE + 1):
            raise DataError(
                f"tokenizer {origin!r}: token {id} is {piece!r} of type {type}, expected some "
                "letters and a type of 1 to 6; train it anew"
            )
        if seen.setdefault(piece, id) != id:
            raise DataError(
                f"tokenizer {origin!r}: token {piece!r} has two ids ({seen[piece]} and {id}); "
                "train it anew"
            )


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Yields (number, value) of each field of a message; raises ValueError if it is damaged."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: _Value
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            (value,) = struct.unpack("<d", _slice(data, at, 8))
            at += 8
        elif wire == 2:
            length, at = _varint(data, at)
            value = _slice(data, at, length)
            at += length
        elif wire == 5:
            (value,) = struct.unpack("<f", _slice(data, at, 4))
            at += 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if number == 0:
            raise ValueError(f"field number 0 at byte {at}")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise ValueError(f"a number of more than 64 bits at byte {at}")


def _slice(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ValueError(f"it ends at byte {len(data)}, expected {at + length} at least")
    return data[at : at + length]


def _bytes(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"{value!r} where text is expected")
    return value


def _integer(value: _Value) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} where a number is expected")
    return value
