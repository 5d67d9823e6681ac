"""Record sets for the eye: what they hold, and examples as text."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.pipeline import Batch, eval_batches
from bert_lamb.data.building.report import REPORT_FILE, read_table
from bert_lamb.data.errors import DataError
from bert_lamb.data.records.manifest import read_manifest
from bert_lamb.data.tokenization import Tokenizer, load_tokenizer

_LABELS = {"nsp": ("next", "random next"), "sop": ("in order", "swapped")}


def describe_records(directory: str | Path) -> str:
    """Returns what the manifest of a record set says, in lines.

    Raises:
        DataError: if it is not a record set.
    """
    m = read_manifest(directory)
    sizes = [shard.num_examples for shard in m.shards]
    lines = [
        f"{m.num_examples:,} examples of up to {m.seq_length} tokens",
        f"{len(sizes)} shards of {min(sizes):,} to {max(sizes):,} examples",
        f"vocabulary of {m.vocab_size:,} tokens, hash {m.tokenizer_hash[:12]}; "
        f"largest id {m.max_token_id}",
        f"format {m.format_version}, seed {m.seed}",
        "options: " + ", ".join(f"{key} {value}" for key, value in _flat(m.options).items()),
    ]
    for source in m.sources:
        lines.append(
            f"source {source['name']} \u2014 "
            + (f"{source['documents']:,} documents, " if source["documents"] else "")
            + f"{source['bytes'] / 1e6:,.1f} MB, SHA-256 {source['sha256'][:12]}"
        )
    return "\n".join(lines)


def describe_report(directory: str | Path) -> str:
    """Returns the data report of a record set as a table, or the few counts of an imported one.

    Raises:
        DataError: if it is not a record set, or its report is damaged.
    """
    if (epath.Path(directory) / REPORT_FILE).exists():
        return read_table(directory)
    counts = read_manifest(directory).report
    return "no data report, as of imported records; counts: " + (
        ", ".join(f"{key} {value}" for key, value in counts.items()) + "\n"
    )


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested options in one level, without those that are not set."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": v for inner, v in _flat(value).items()}
        else:
            flat[key] = value
    return {
        key: value
        for key, value in flat.items()
        if value is not None and not key.endswith(("sha256", "_chars"))
    }


def show_examples(
    directory: str | Path, start: int = 0, number: int = 5, *, masked: bool = False
) -> Iterator[str]:
    """Yields examples of a record set as text, one line for each segment.

    Args:
        directory: of the record set.
        start: number of the first example.
        number: examples wanted; fewer come at the end.
        masked: show the input of the model under one choice of masks, the hidden tokens after it.

    Raises:
        DataError: if it is not a record set, or has no example `start`.
    """
    manifest = read_manifest(directory)
    if not 0 <= start < manifest.num_examples:
        raise DataError(
            f"start = {start}: expected 0 to {manifest.num_examples - 1}, the examples of "
            f"{str(directory)!r}"
        )
    if number < 1:
        raise DataError(f"number = {number}: expected at least 1")
    kind = manifest.options.get("examples", {}).get("kind", "nsp")
    tokenizer = load_tokenizer(directory)
    batches = eval_batches(
        directory,
        seq_length=manifest.seq_length,
        max_predictions=max(1, manifest.seq_length // 6),
        batch=1,
        masking=MaskingConfig(),
        seed=0,
        max_examples=number,
        first=start,
    )
    for place, batch in enumerate(batches, start):
        yield "\n".join([f"--- example {place}", *_lines(batch, tokenizer, kind, masked)])


def _lines(batch: Batch, tokenizer: Tokenizer, kind: str, masked: bool) -> Iterator[str]:
    """Yields the lines on the one row of a batch."""
    row = {key: value[0] for key, value in batch.items()}
    used = row["masked_lm_weights"] > 0
    positions, hidden = row["masked_lm_positions"][used], row["masked_lm_ids"][used]
    ids = row["input_ids"].copy()
    if not masked:
        ids[positions] = hidden
    length = int(row["input_mask"].sum())
    label = _LABELS.get(kind, ("", ""))[int(row["next_sentence_labels"])]
    yield f"{length} tokens" + (f", {label}" if row["next_sentence_weights"] else "")
    for name, segment in (("A", 0), ("B", 1)):
        inside = (row["segment_ids"] == segment) & (np.arange(len(ids)) < length)
        tokens = [tokenizer.token(int(id)) for id in ids[inside]]
        if tokens:
            yield f"{name}: {' '.join(tokens)}"
    if masked:
        shown = (f"{p} {tokenizer.token(int(id))}" for p, id in zip(positions, hidden, strict=True))
        yield f"hidden: {', '.join(shown)}"
