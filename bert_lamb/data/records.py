"""Record sets: ArrayRecord shards of sentence pairs with a manifest and the tokenizer.

A record set is a directory:

    manifest.json            what the records are; see Manifest
    data_report.json         what became of the text
    tokenizer.json, vocab.txt
    pairs-00000-of-00008.array_record ...

A record is an unmasked pair, little-endian: a byte of flags (bit 0: the second segment is from
another document), a zero byte, the length of the first segment as uint16, then the ids of both
segments without special tokens, as uint16 where the vocabulary has at most 65,536 tokens and as
uint32 otherwise (the manifest says which). The second segment runs to the end of the record.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python import array_record_module
from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import SPECIALS_PER_ROW, Example

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
_HEADER = struct.Struct("<BxH")
_LENGTH = struct.Struct("<I")
_SPOOLED_AT_ONCE = 1 << 16  # bytes
_RANDOM_FLAG = 1

# One record per chunk: with the library's default group of records, reading one at random would
# read and unpack them all. So short a chunk of ids hardly compresses, hence not at all.
_WRITER_OPTIONS = "group_size:1,uncompressed"
_HOW_TO_MAKE = "make records with `bert-lamb data build`"


@dataclass(frozen=True)
class Shard:
    """A file of records: its name in the directory and how many it holds."""

    name: str
    num_examples: int


@dataclass(frozen=True)
class Manifest:
    """What a record set holds and where it came from.

    Attributes:
        format_version: of this layout.
        seq_length: tokens per row T the pairs were made for, special tokens included.
        vocab_size: tokens of the vocabulary V.
        max_token_id: largest id in any record.
        tokenizer_hash: Tokenizer.hash of the tokenizer in the directory.
        id_dtype: "uint16" or "uint32".
        num_examples: records in all shards.
        shards: the files, in the order in which examples are numbered.
        num_random_next: examples whose second segment is from another document.
        seed: of the pairs.
        sources: per source its name, documents, bytes and SHA-256.
        options: the other arguments of the build.
        report: the data report (see report.DataReport).
    """

    format_version: int
    seq_length: int
    vocab_size: int
    max_token_id: int
    tokenizer_hash: str
    id_dtype: str
    num_examples: int
    shards: tuple[Shard, ...]
    num_random_next: int
    seed: int
    sources: tuple[dict[str, Any], ...]
    options: dict[str, Any]
    report: dict[str, Any]


def id_dtype(vocab_size: int) -> np.dtype:
    """Returns the type that stores ids of a vocabulary: uint16 or uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


def stored_dtype(manifest: Manifest) -> np.dtype:
    """Returns the type of the ids in the records of `manifest`."""
    return np.dtype(manifest.id_dtype).newbyteorder("<")


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


class ShardWriter:
    """Deals records round-robin to the shards of a directory, so that they differ by one at most.

    An open ArrayRecord file buffers 16 MiB and keeps 50 bytes for each of its records. So the
    records go to plain spool files first, and become ArrayRecord files one shard after the other:
    memory does not grow with the number of shards, and with that of records by one shard's index.

    The bytes depend on the records and their order only: ArrayRecord files hold no time stamps.
    """

    def __init__(self, directory: Path, num_shards: int) -> None:
        names = [f"pairs-{i:05d}-of-{num_shards:05d}.array_record" for i in range(num_shards)]
        self._paths = [directory / name for name in names]
        self._counts = [0] * num_shards
        self._next = 0
        for path in self._paths:
            _spool(path).touch()
        self._waiting: list[bytearray] = [bytearray() for _ in names]

    def write(self, record: bytes) -> None:
        """Appends one record."""
        waiting = self._waiting[self._next]
        waiting += _LENGTH.pack(len(record)) + record
        if len(waiting) >= _SPOOLED_AT_ONCE:
            self._flush(self._next)
        self._counts[self._next] += 1
        self._next = (self._next + 1) % len(self._counts)

    def close(self) -> tuple[Shard, ...]:
        """Finishes the files; returns what they hold."""
        for number, path in enumerate(self._paths):
            self._flush(number)
            writer = array_record_module.ArrayRecordWriter(str(path), _WRITER_OPTIONS)
            with _spool(path).open("rb") as spool:
                while length := spool.read(_LENGTH.size):
                    writer.write(spool.read(*_LENGTH.unpack(length)))
            writer.close()
            _spool(path).unlink()
        return tuple(
            Shard(path.name, count) for path, count in zip(self._paths, self._counts, strict=True)
        )

    def _flush(self, number: int) -> None:
        # Opened for each write, so that thousands of shards need no more than one open file.
        with _spool(self._paths[number]).open("ab") as spool:
            spool.write(self._waiting[number])
        self._waiting[number].clear()


def _spool(path: Path) -> Path:
    return path.with_suffix(".spool")


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes manifest.json, which makes a directory a record set."""
    write_json(directory / MANIFEST_FILE, asdict(manifest))


def write_json(file: Path, values: dict[str, Any]) -> None:
    """Writes `values` as indented UTF-8 JSON."""
    file.write_bytes(
        (json.dumps(values, ensure_ascii=False, indent=1) + "\n").encode(errors="replace")
    )


def read_manifest(directory: str | Path) -> Manifest:
    """Reads the manifest of a record set, strictly.

    Raises:
        DataError: if the directory, the file or a shard is missing, or the format is another one.
    """
    folder = epath.Path(directory)
    file = folder / MANIFEST_FILE
    if not folder.is_dir():
        raise DataError(f"records {str(directory)!r}: no such directory; {_HOW_TO_MAKE}")
    if not file.exists():
        inside = [str(p.parent) for p in sorted(folder.glob(f"*/{MANIFEST_FILE}"))]
        hint = f"did you mean {' or '.join(inside)}?" if inside else _HOW_TO_MAKE
        raise DataError(f"records {str(directory)!r}: no {MANIFEST_FILE} inside; {hint}")
    try:
        values = json.loads(file.read_bytes())
        version = values["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not a manifest ({error!r}); {_HOW_TO_MAKE} again") from error
    if version != FORMAT_VERSION:
        raise DataError(
            f"{file}: format_version = {version!r}: expected {FORMAT_VERSION}; {_HOW_TO_MAKE} again"
        )
    expected = {f.name for f in fields(Manifest)}
    if values.keys() != expected:
        wrong = ", ".join(sorted(values.keys() ^ expected))
        raise DataError(f"{file}: missing or unknown keys: {wrong}; {_HOW_TO_MAKE} again")
    try:
        manifest = _checked_manifest(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{file}: not a manifest ({error}); {_HOW_TO_MAKE} again") from error
    if not (folder / "tokenizer.json").exists():
        raise DataError(
            f"records {str(directory)!r}: tokenizer.json is missing; copy the whole directory, or "
            "make it again"
        )
    for shard in manifest.shards:
        if not (folder / shard.name).exists():
            raise DataError(
                f"records {str(directory)!r}: shard {shard.name} is missing; copy the "
                "whole directory, or make it again"
            )
    return manifest


def _checked_manifest(values: dict[str, Any]) -> Manifest:
    """Builds the manifest; raises TypeError or ValueError for one that no build wrote."""
    for f in fields(Manifest):
        kind = {"int": int, "str": str}.get(getattr(f.type, "__name__", str(f.type)))
        if kind is not None and type(values[f.name]) is not kind:
            raise TypeError(f"{f.name} = {values[f.name]!r}: expected {kind.__name__}")
    if values["id_dtype"] not in ("uint16", "uint32"):
        raise ValueError(f"id_dtype = {values['id_dtype']!r}: expected uint16 or uint32")
    shards = tuple(Shard(**shard) for shard in values["shards"])
    total = sum(shard.num_examples for shard in shards)
    if not shards or total != values["num_examples"]:
        raise ValueError(f"num_examples = {values['num_examples']}: the shards hold {total}")
    return Manifest(**values | {"shards": shards, "sources": tuple(values["sources"])})


def check_records(
    manifest: Manifest, *, seq_length: int, vocab_size: int, max_predictions: int
) -> None:
    """Checks that a model and a phase fit a record set, before anything is compiled.

    Args:
        manifest: of the records.
        seq_length: row length T of the phase; equal to that of the records, since longer records
            would not fit and shorter ones would waste most of each row.
        vocab_size: of the model; may exceed the vocabulary of the records but not fall short.
        max_predictions: masked positions per row P.

    Raises:
        DataError: naming the key and both values.
    """
    if seq_length != manifest.seq_length:
        raise DataError(
            f"seq_length = {seq_length}: the records were made for {manifest.seq_length}; set "
            f"seq_length to {manifest.seq_length}, or make records for {seq_length}"
        )
    if manifest.max_token_id >= vocab_size:
        raise DataError(
            f"vocab_size = {vocab_size}: the records hold token id {manifest.max_token_id}; set "
            f"vocab_size to {manifest.vocab_size}, the size of their vocabulary"
        )
    if vocab_size < manifest.vocab_size:
        raise DataError(
            f"vocab_size = {vocab_size}: the vocabulary of the records has {manifest.vocab_size} "
            f"tokens, and masking draws from all of them; set vocab_size to {manifest.vocab_size}"
        )
    if not 1 <= max_predictions <= seq_length - 2:
        raise DataError(
            f"max_predictions = {max_predictions}: expected 1 to seq_length - 2 = {seq_length - 2}"
        )
