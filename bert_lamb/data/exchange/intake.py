"""Pre-masked TFRecords to record sets."""

import glob
import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError, last_line
from bert_lamb.data.exchange.distinct import Distinct
from bert_lamb.data.exchange.new_folder import new_folder
from bert_lamb.data.exchange.restore import Text, restore
from bert_lamb.data.exchange.rows import Layout, find_layout, read_rows
from bert_lamb.data.records.format import id_dtype, pack
from bert_lamb.data.records.manifest import (
    FORMAT_VERSION,
    Manifest,
    Shard,
    write_manifest,
)
from bert_lamb.data.records.shards import shard_name, write_shard
from bert_lamb.data.tokenization import Tokenizer

_LOG = logging.getLogger(__name__)
_READ_AT_ONCE = 1 << 20  # bytes


def import_tfrecords(patterns: Sequence[str], output: str | Path, tokenizer: Tokenizer) -> Manifest:
    """Makes a record set of pre-masked TFRecords, one shard for each file.

    The masks are undone: the record set is masked anew while training, as any other. Examples keep
    their order. One that equals an earlier example of any file, as the copies do that Google's
    script makes of one pair with other masks, is dropped and counted.

    Args:
        patterns: paths and globs of files with the features of the package, local or remote; gzip
            files are known by their content. Features beyond those are not looked at.
        output: local folder to make; may exist if it is empty. Nothing is left there on failure.
        tokenizer: of the vocabulary that the files were made with; saved with the records.

    Returns:
        The manifest; its report says how many records were read and dropped.

    Raises:
        DataError: if no file matches, `output` holds anything, or a record is damaged or does not
            fit the schema, the vocabulary or the lengths of the first; names file and record.
    """
    files = _expand(patterns)
    with new_folder(output) as folder:
        tokenizer.save(folder)
        work = _Import(tokenizer, find_layout(files))
        names = [shard_name(i, len(files)) for i in range(len(files))]
        shards = tuple(
            Shard(name, write_shard(folder / name, work.examples(file)))
            for name, file in zip(names, files, strict=True)
        )
        manifest = work.manifest(shards)
        write_manifest(folder, manifest)
    return manifest


@dataclass
class _Import:
    """The state of an import: what was met in the files so far."""

    tokenizer: Tokenizer
    layout: Layout
    distinct: Distinct = field(default_factory=Distinct)
    sources: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    kept: int = 0
    label_ones: int = 0
    max_token_id: int = 0

    def examples(self, file: str) -> Iterator[bytes]:
        """Yields the packed examples of a file that were not met before."""
        text = Text.of(self.tokenizer)
        dtype = id_dtype(self.tokenizer.vocab_size)
        before = (self.read, self.kept)
        for rows in read_rows(file, self.layout):
            for example in restore(rows, text):
                record = pack(example, dtype)
                self.read += 1
                if self.distinct.add(record):
                    self.kept += 1
                    self.label_ones += example.label
                    segments = (ids for ids in (example.ids_a, example.ids_b) if ids is not None)
                    self.max_token_id = max(self.max_token_id, *(int(np.max(s)) for s in segments))
                    yield record
        read, kept = self.read - before[0], self.kept - before[1]
        _LOG.info("%s: %d records, %d of them met before", file, read, read - kept)
        self.sources.append(_source(file) | {"records": read})

    def manifest(self, shards: tuple[Shard, ...]) -> Manifest:
        """Describes the finished record set."""
        return Manifest(
            format_version=FORMAT_VERSION,
            seq_length=self.layout.seq_length,
            vocab_size=self.tokenizer.vocab_size,
            max_token_id=self.max_token_id,
            tokenizer_hash=self.tokenizer.hash,
            id_dtype=id_dtype(self.tokenizer.vocab_size).name,
            num_examples=self.kept,
            shards=shards,
            num_random_next=self.label_ones,
            seed=0,
            sources=tuple(self.sources),
            options={"imported": "tfrecord", "max_predictions": self.layout.max_predictions},
            report={
                "records": self.read,
                "duplicates": self.read - self.kept,
                "label_ones_share": round(self.label_ones / self.kept, 6),
            },
        )


def _source(file: str) -> dict[str, Any]:
    """Returns what tells a file from others; its documents are not known."""
    sha256, size = hashlib.sha256(), 0
    with epath.Path(file).open("rb") as stream:
        while data := stream.read(_READ_AT_ONCE):
            sha256.update(data)
            size += len(data)
    return {"name": file, "documents": 0, "bytes": size, "sha256": sha256.hexdigest()}


def _expand(patterns: Sequence[str]) -> list[str]:
    """Returns the files that `patterns` stand for, each once, in the order of their names."""
    files: dict[str, None] = {}
    for pattern in patterns:
        found = _expand_remote(pattern) if "://" in pattern else _expand_local(pattern)
        if not found:
            raise DataError(
                f"input {pattern!r}: no file matches; check the spelling, and quote globs in the "
                "shell"
            )
        files |= dict.fromkeys(found)
    return list(files)


def _expand_local(pattern: str) -> list[str]:
    # A file whose name holds glob characters is meant literally where it exists.
    found = [pattern] if Path(pattern).exists() else glob.glob(pattern, recursive=True)
    return sorted(name for name in found if Path(name).is_file())


def _expand_remote(pattern: str) -> list[str]:
    try:
        path = epath.Path(pattern)
        return sorted(str(file) for file in path.parent.glob(path.name))
    except Exception as error:  # each file system of fsspec has exceptions of its own
        raise DataError(
            f"input {pattern!r}: cannot be read here "
            f"({type(error).__name__}: {last_line(error)}); check the address, install the fsspec "
            "package for it (gcsfs for gs://, s3fs for s3://), or copy the files to a local folder"
        ) from error
