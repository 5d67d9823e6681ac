"""The manifest: what a record set holds, checked before anything is compiled."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import check_seq_length
from bert_lamb.data.tokenization import TOKENIZER_FILES

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
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


def stored_dtype(manifest: Manifest) -> np.dtype:
    """Returns the type of the ids in the records of `manifest`."""
    return np.dtype(manifest.id_dtype).newbyteorder("<")


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
    except (ValueError, KeyError, TypeError, RecursionError) as error:
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
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{file}: not a manifest ({error}); {_HOW_TO_MAKE} again") from error
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
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
    for key in ("options", "report"):
        if not isinstance(values[key], dict):
            raise TypeError(f"{key}: expected an object")
    if not all(isinstance(source, dict) for source in values["sources"]):
        raise TypeError("sources: expected objects")
    check_seq_length(values["seq_length"])
    shards = tuple(Shard(**shard) for shard in values["shards"])
    if not all(type(s.name) is str and type(s.num_examples) is int for s in shards):
        raise TypeError("shards: expected a name and a number of examples for each")
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
