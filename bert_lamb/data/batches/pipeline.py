"""Record sets to batches: order, decoding, masking.

Batch t is a pure function of (records, seed, t). The position of a run is therefore one integer,
and a run may continue on another number of processes: each takes its rows of the same batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grain
import numpy as np
from etils import epath

from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.masking import Vocabulary, mask_batch
from bert_lamb.data.batches.source import RecordSource
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import Example
from bert_lamb.data.records.format import pack, payload, unpack
from bert_lamb.data.records.manifest import Manifest, check_records, read_manifest, stored_dtype
from bert_lamb.data.tokenization import Tokenizer, load_tokenizer

Batch = dict[str, np.ndarray]

# Enough to hide the making of a batch; more would only hold more batches in memory.
_READ_OPTIONS = grain.ReadOptions(num_threads=4, prefetch_buffer_size=4)
_LAST_BATCH = 2**62
_ROWS_AT_ONCE = 4096
# Fills up the last batch of an evaluation: attention still has tokens to look at there.
_EMPTY_RECORD = pack(Example([], [], False), np.dtype(np.uint16))


def train_batches(
    records_dir: str | Path,
    *,
    seq_length: int,
    max_predictions: int,
    global_batch: int,
    masking: MaskingConfig,
    seed: int,
    start: int = 0,
    rows: np.ndarray | None = None,
    on_damage: str = "stop",
) -> Iterator[Batch]:
    """Returns the endless training batches of this process, from batch `start` on.

    Each epoch goes over all examples in a new order and with new masks. Epochs follow one another
    without a gap: a batch may end one and begin the next, and records fewer than a batch repeat
    inside it, each time masked anew.

    Args:
        records_dir: a record set, see build.build_records.
        seq_length: tokens per row T; must be that of the records.
        max_predictions: masked positions per row P.
        global_batch: rows of a batch over all processes.
        masking: shares of the masking recipe.
        seed: of order and masks; 0 to 2**32 - 1.
        start: number of the first batch; going there costs nothing.
        rows: numbers of the rows of each global batch to make here, such as `host_rows` gives;
            None makes all.
        on_damage: "stop" at a record that cannot be read, or "skip" it: its row is as empty as
            those that fill up the last batch of an evaluation, and weighs nothing.

    Returns:
        Batches of b rows, those in `rows`:
        input_ids int32 [b, T], input_mask int32 [b, T], segment_ids int32 [b, T],
        masked_lm_positions int32 [b, P], masked_lm_ids int32 [b, P],
        masked_lm_weights float32 [b, P], next_sentence_labels int32 [b] (1: second segment random,
        or the two swapped), next_sentence_weights float32 [b] (0: empty row, or one segment only),
        row int32 [b] (number of the row in the global batch).

    Raises:
        DataError: if the records are missing or damaged, or do not fit the arguments.
    """
    rows = _checked("global_batch", global_batch, rows)
    if start < 0:
        raise DataError(f"start = {start}: expected 0 or more batches")
    reader = BatchReader.open(records_dir, seq_length, max_predictions, masking, seed, on_damage)
    size = reader.manifest.num_examples
    order = grain.MapDataset.range(size).seed(seed).shuffle().repeat(None)

    def load(t: int) -> Batch:
        places = t * global_batch + rows
        examples = np.array([order[int(place)] for place in places])
        return reader.batch(examples, epoch=places // size, row=rows)

    batches = grain.MapDataset.range(start, _LAST_BATCH).map(load)
    return iter(batches.to_iter_dataset(_READ_OPTIONS))


def eval_batches(
    records_dir: str | Path,
    *,
    seq_length: int,
    max_predictions: int,
    batch: int,
    masking: MaskingConfig,
    seed: int,
    max_examples: int = 0,
    first: int = 0,
    rows: np.ndarray | None = None,
) -> Iterator[Batch]:
    """Returns batches that hold every example once, in order, always with the same masks.

    All processes get the same number of batches. The last batch is filled up with rows of weight
    0 that hold an empty pair ([CLS] [SEP] [SEP]).

    Args:
        records_dir: a record set.
        seq_length: tokens per row T; must be that of the records.
        max_predictions: masked positions per row P.
        batch: rows of a batch over all processes.
        masking: shares of the masking recipe.
        seed: of the masks.
        max_examples: take so many examples at most; 0 takes all.
        first: example to begin with.
        rows: numbers of the rows of each batch to make here; None makes all.

    Returns:
        Batches as those of `train_batches`.

    Raises:
        DataError: as `train_batches`.
    """
    rows = _checked("batch", batch, rows)
    if max_examples < 0:
        raise DataError(f"max_examples = {max_examples}: expected 0 (all) or more")
    reader = BatchReader.open(records_dir, seq_length, max_predictions, masking, seed)
    end = reader.manifest.num_examples
    end = min(first + max_examples, end) if max_examples else end

    def passes() -> Iterator[Batch]:
        for start in range(first, end, batch):
            examples = start + rows
            yield reader.batch(examples[examples < end], epoch=np.zeros_like(rows), row=rows)

    return passes()


def read_token_rows(records_dir: str | Path) -> Iterator[np.ndarray]:
    """Yields the ids of all examples, many examples at a time, without special tokens.

    For statistics of the training text, such as the frequency of each token.

    Args:
        records_dir: a record set.

    Returns:
        Arrays of ids. uint16 or uint32 [n]

    Raises:
        DataError: if the records are missing or damaged.
    """
    manifest = read_manifest(records_dir)
    source = RecordSource(records_dir, manifest)
    return (
        payload([r for r in source.read(numbers) if r is not None], stored_dtype(manifest))
        for numbers in _in_chunks(len(source), _ROWS_AT_ONCE)
    )


def _in_chunks(size: int, chunk: int) -> Iterator[np.ndarray]:
    return (np.arange(start, min(start + chunk, size)) for start in range(0, size, chunk))


@dataclass(frozen=True)
class BatchReader:
    """Makes batches of numbered examples."""

    folder: epath.Path
    manifest: Manifest
    source: RecordSource
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    max_predictions: int
    masking: MaskingConfig
    seed: int

    @classmethod
    def open(
        cls,
        records_dir: str | Path,
        seq_length: int,
        max_predictions: int,
        masking: MaskingConfig,
        seed: int,
        on_damage: str = "stop",
    ) -> "BatchReader":
        """Opens a record set; arguments and faults as those of `train_batches`."""
        if not 0 <= seed < 2**32:
            raise DataError(f"seed = {seed}: expected an integer in [0, 2**32)")
        manifest = read_manifest(records_dir)
        check_records(
            manifest,
            seq_length=seq_length,
            vocab_size=manifest.vocab_size,
            max_predictions=max_predictions,
        )
        folder = epath.Path(records_dir)
        tokenizer = load_tokenizer(folder)
        if tokenizer.hash != manifest.tokenizer_hash:
            raise DataError(
                f"{folder}: the hash of the tokenizer, {tokenizer.hash[:12]}, is not that of the "
                f"records, {manifest.tokenizer_hash[:12]}; put the original file back"
            )
        source = RecordSource(folder, manifest, on_damage)
        vocabulary = Vocabulary(
            tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids, tokenizer.continues
        )
        return cls(folder, manifest, source, tokenizer, vocabulary, max_predictions, masking, seed)

    def batch(self, examples: np.ndarray, epoch: np.ndarray, row: np.ndarray) -> Batch:
        """Reads and masks a batch.

        Args:
            examples: indices of the examples; fewer than rows leave the last rows empty. [n <= b]
            epoch: of each row. [b]
            row: number of each row in the global batch. [b]
        """
        empty = len(row) - len(examples)
        tokenizer = self.tokenizer
        records = [*self.source.read(examples), *[None] * empty]
        is_there = np.array([record is not None for record in records])
        rows = unpack(
            [_EMPTY_RECORD if record is None else record for record in records],
            stored_dtype(self.manifest),
            self.manifest.seq_length,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
        )
        if rows.tokens.max() > max(
            self.manifest.max_token_id, max(tokenizer.special_tokens.values())
        ):
            raise DataError(
                f"records {str(self.folder)!r}: token id {rows.tokens.max()} in a shard, but the "
                f"manifest says at most {self.manifest.max_token_id}: a shard is of other records; "
                "copy the directory again"
            )
        masked = mask_batch(
            rows.tokens,
            epoch=epoch,
            example=np.concatenate([examples, np.zeros(empty, examples.dtype)]),
            seed=self.seed,
            max_predictions=self.max_predictions,
            vocabulary=self.vocabulary,
            config=self.masking,
        )
        column = np.arange(self.manifest.seq_length)
        inside = column < rows.lengths[:, None]
        return {
            "input_ids": masked.input_ids,
            "input_mask": inside.astype(np.int32),
            "segment_ids": (inside & (column >= rows.lengths_a[:, None])).astype(np.int32),
            "masked_lm_positions": masked.positions,
            "masked_lm_ids": masked.ids,
            "masked_lm_weights": masked.weights,
            "next_sentence_labels": rows.labels,
            "next_sentence_weights": (is_there & rows.has_pair).astype(np.float32),
            "row": row.astype(np.int32),
        }


def host_rows(size: int, host: int, hosts: int) -> np.ndarray:
    """Returns the numbers of one host's rows of a batch that all hosts share evenly.

    Args:
        size: rows of the batch.
        host: number of the host, from 0; host 0 has the first rows.
        hosts: number of hosts.

    Returns:
        int64 [size / hosts].

    Raises:
        DataError: if the rows cannot be shared evenly.
    """
    if hosts < 1 or size < 1 or size % hosts:
        raise DataError(f"a batch of {size} rows: expected a positive multiple of {hosts} hosts")
    if not 0 <= host < hosts:
        raise DataError(f"host = {host}: expected 0 to {hosts - 1}")
    share = size // hosts
    return np.arange(host * share, (host + 1) * share)


def _checked(key: str, size: int, rows: np.ndarray | None) -> np.ndarray:
    if size < 1:
        raise DataError(f"{key} = {size}: expected at least 1 row")
    rows = np.arange(size) if rows is None else rows
    if not rows.size or rows.min() < 0 or rows.max() >= size:
        raise DataError(f"rows = {rows.tolist()}: expected numbers below {key} = {size}")
    return rows
