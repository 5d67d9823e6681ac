"""Record sets to pre-masked TFRecords."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.pipeline import Batch, BatchReader
from bert_lamb.data.errors import DataError
from bert_lamb.data.exchange.new_folder import new_folder
from bert_lamb.data.records.manifest import read_manifest, write_json
from bert_lamb.data.records.tf_example import encode_example
from bert_lamb.data.records.tfrecord import write_tfrecord

EXPORT_FILE = "export.json"
_FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
_ROWS_AT_ONCE = 512


def export_tfrecords(
    records_dir: str | Path,
    output: str | Path,
    *,
    max_predictions: int,
    masking: MaskingConfig | None = None,
    seed: int = 0,
    copies: int = 1,
    compressed: bool = False,
) -> list[str]:
    """Writes a record set as pre-masked TFRecords, one file for each of its shards.

    A file holds all examples of its shard in order, then all again with other masks, `copies`
    times. Copy c has the masks that training with the same seed and masking has in epoch c. The
    tokenizer, and in export.json the arguments, are written beside the files. The bytes depend on
    the records and the arguments only, and nothing is left behind on failure.

    Args:
        records_dir: a record set, local or remote.
        output: local folder to make; may exist if it is empty.
        max_predictions: slots for predictions per row P (published: 20 for rows of 128 tokens,
            80 for 512).
        masking: shares of the masking recipe; the published ones if None.
        seed: of the masks; 0 to 2**32 - 1.
        copies: times to write each example (Google's dupe factor).
        compressed: write each file as one gzip stream (option gzip_compress of the TensorFlow
            Model Garden).

    Returns:
        The names of the files in `output`.

    Raises:
        DataError: if the records are missing or damaged, an argument is impossible, or `output`
            holds anything.
    """
    if copies < 1:
        raise DataError(f"copies = {copies}: expected at least 1")
    masking = masking or MaskingConfig()
    if masking.static and copies > 1:
        raise DataError(
            f"copies = {copies} with masking.static: the copies would be equal; write one, or drop "
            "static"
        )
    seq_length = read_manifest(records_dir).seq_length
    reader = BatchReader.open(records_dir, seq_length, max_predictions, masking, seed)
    shards = reader.manifest.shards
    ending = ".tfrecord.gz" if compressed else ".tfrecord"
    names = [f"pairs-{i:05d}-of-{len(shards):05d}{ending}" for i in range(len(shards))]
    with new_folder(output) as folder:
        first = 0
        for name, shard in zip(names, shards, strict=True):
            examples = range(first, first + shard.num_examples)
            rows = (
                encode_example({feature: batch[feature][i] for feature in _FEATURES})
                for batch in _batches(reader, examples, copies)
                for i in range(len(batch["row"]))
            )
            write_tfrecord(folder / name, rows, compressed=compressed)
            first = examples.stop
        reader.tokenizer.save(folder)
        arguments = {
            "seq_length": seq_length,
            "max_predictions": max_predictions,
            "masking": asdict(masking),
            "seed": seed,
            "copies": copies,
            "num_examples": reader.manifest.num_examples * copies,
            "tokenizer_hash": reader.tokenizer.hash,
            "record_options": reader.manifest.options,
        }
        write_json(folder / EXPORT_FILE, arguments)
    return names


def _batches(reader: BatchReader, examples: range, copies: int) -> Iterator[Batch]:
    """Yields the rows of `examples`, masked as in epoch 0, then all as in epoch 1, and so on."""
    for epoch in range(copies):
        for start in range(examples.start, examples.stop, _ROWS_AT_ONCE):
            chosen = np.arange(start, min(start + _ROWS_AT_ONCE, examples.stop))
            batch = reader.batch(
                chosen, epoch=np.full_like(chosen, epoch), row=np.arange(len(chosen))
            )
            batch["next_sentence_labels"] = batch["next_sentence_labels"][:, None]
            yield batch
