"""The data report: what was read, written and dropped, and what looks wrong."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from etils import epath

from bert_lamb.data.building.gather import Gathered
from bert_lamb.data.corpus import Source
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import PairCounts

REPORT_FILE = "data_report.json"
LENGTH_BINS = 8
_LABEL_ONE = {"nsp": "random-next", "sop": "swapped"}  # what a pair of sentence label 1 is


@dataclass
class Counts(PairCounts):
    """What became of documents; counts of several chunks add up.

    Attributes:
        documents: documents worked on (a long one once, whatever its parts).
        documents_empty: documents, or parts of one, without any token.
        sentences: sentences with at least one token.
        tokens: tokens of all sentences.
        used: the same, counted as often as they were used (copies times weight).
        unknown: [UNK] among `tokens`.
        removed_characters: control and format characters that the tokenizer's rules remove, which
            fuses the words beside them.
        examples: examples made.
        label_ones: examples with sentence label 1: a random second segment, or a swapped one.
        lengths: examples by row length without padding, in equal bins up to seq_length.
        row_tokens: tokens of all rows without padding, special tokens included.
    """

    documents: int = 0
    documents_empty: int = 0
    sentences: int = 0
    tokens: int = 0
    used: int = 0
    unknown: int = 0
    removed_characters: int = 0
    examples: int = 0
    label_ones: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * LENGTH_BINS)
    row_tokens: int = 0

    def add(self, other: "Counts") -> None:
        """Adds `other` to these counts."""
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            total = (
                [a + b for a, b in zip(mine, theirs, strict=True)]
                if isinstance(mine, list)
                else mine + theirs
            )
            setattr(self, f.name, total)


@dataclass(frozen=True)
class SourceReport:
    """What became of one source.

    Attributes:
        name: the source as the user wrote it.
        weight: times its documents were used.
        files: files read.
        documents: documents read and kept for either record set.
        titled: documents read that have a title.
        excluded: documents left out for their titles.
        duplicates: documents left out as equal to an earlier one.
        skipped: records that are no document, by cause.
        bytes: bytes of text read, after unpacking.
        lines: lines read.
        lines_skipped: lines left out for a fault.
        bytes_dropped: bytes of faulty text that were replaced or left out.
        faults: the first few faults in words.
        sha256: hash of all bytes read.
        counts: what became of those documents that belong to the reported record set.
    """

    name: str
    weight: float
    files: int
    documents: int
    titled: int
    excluded: int
    duplicates: int
    skipped: dict[str, int]
    bytes: int
    lines: int
    lines_skipped: int
    bytes_dropped: int
    faults: tuple[str, ...]
    sha256: str
    counts: Counts = field(default_factory=Counts)

    @property
    def unknown_share(self) -> float:
        """Share of its tokens that is [UNK]."""
        return self.counts.unknown / max(1, self.counts.tokens)


_SHOWN_FAULTS = 10


def source_report(source: Source, gathered: Sequence[Gathered], duplicates: int) -> SourceReport:
    """Adds up what reading the units of a source found."""
    readings = [found.reading for found in gathered]
    total = {
        key: sum(reading[key] for reading in readings)
        for key in ("files", "bytes", "lines", "lines_skipped", "bytes_dropped")
    }
    skipped: Counter[str] = Counter()
    for reading in readings:
        skipped.update(reading["skipped"])
    digest = hashlib.sha256("".join(found.sha256 for found in gathered).encode())
    return SourceReport(
        name=source.name,
        weight=source.weight,
        documents=sum(found.documents for found in gathered) - duplicates,
        titled=sum(found.titled for found in gathered),
        excluded=sum(found.excluded for found in gathered),
        duplicates=duplicates,
        skipped=dict(sorted(skipped.items())),
        faults=tuple(fault for reading in readings for fault in reading["faults"])[:_SHOWN_FAULTS],
        sha256=gathered[0].sha256 if len(gathered) == 1 else digest.hexdigest(),
        **total,
    )


@dataclass(frozen=True)
class DataReport:
    """The report on one record set. It holds no times, so equal inputs give equal reports.

    Attributes:
        sources: what was read, and what became of it in this record set.
        kind: of the examples: "nsp", "sop" or "single".
        copies: times each document was gone through with other random choices.
        seq_length: tokens per row T.
        duplicates: examples exactly equal to an earlier one.
        duplicates_share: share of the examples on which `duplicates` rests; 1.0 is exact.
        special_ids: ids of the special tokens by name.
        titles: titles to leave out.
        titles_found: those of them that a document had.
    """

    sources: tuple[SourceReport, ...]
    kind: str
    copies: int
    seq_length: int
    duplicates: int
    duplicates_share: float
    special_ids: dict[str, int]
    titles: int
    titles_found: int

    @property
    def counts(self) -> Counts:
        """What became of the documents of all sources."""
        total = Counts()
        for source in self.sources:
            total.add(source.counts)
        return total

    @property
    def figures(self) -> dict[str, float]:
        """Shares and means, by name.

        kept_share: of the tokens used, those in examples; label_ones_share: examples with sentence
        label 1; mean_sentences: per document; mean_row_tokens: without padding; padding_share: of
        all positions; unknown_share: of the tokens, [UNK].
        """
        c = self.counts
        positions = c.examples * self.seq_length
        return {
            "kept_share": round(c.written / max(1, c.used), 6),
            "label_ones_share": round(c.label_ones / max(1, c.examples), 6),
            "mean_sentences": round(c.sentences / max(1, c.documents - c.documents_empty), 3),
            "mean_row_tokens": round(c.row_tokens / max(1, c.examples), 3),
            "padding_share": round(1 - c.row_tokens / max(1, positions), 6),
            "unknown_share": round(c.unknown / max(1, c.tokens), 6),
        }

    @property
    def _repeats_on_purpose(self) -> bool:
        """Single segments of full length are the same at every use of a document."""
        return self.kind == "single" and any(source.weight > 1 for source in self.sources)

    @property
    def warnings(self) -> list[str]:
        """What looks wrong, each with its figure and what to do."""
        c, f = self.counts, self.figures
        dropped = sum(source.bytes_dropped for source in self.sources)
        read = sum(source.documents + source.duplicates for source in self.sources)
        equal = sum(source.duplicates for source in self.sources)
        label = _LABEL_ONE.get(self.kind)
        checks = [
            (
                self.kind == "nsp" and f["mean_sentences"] < 1.5,
                f"{f['mean_sentences']:.2f} sentences per document: nearly every second segment "
                "is random; check that blank lines divide documents, not sentences",
            ),
            (
                label is not None and not 0.4 <= f["label_ones_share"] <= 0.6,
                f"{f['label_ones_share']:.1%} of the pairs are {label}, expected 40-60 %: "
                "the sentence loss is nearly decided by the label's frequency"
                + f"; {c.documents} documents are few, use more"
                * (c.documents < 50),
            ),
            (
                f["kept_share"] < 0.85,
                f"{f['kept_share']:.1%} of the tokens were kept: sentences are long for rows of "
                f"{self.seq_length}; take longer rows or shorter sentences",
            ),
            (
                f["padding_share"] > 0.3,
                f"{f['padding_share']:.1%} of all positions is padding: documents are short for "
                f"rows of {self.seq_length}; take shorter rows, or single segments that cross "
                "documents",
            ),
            *(
                (
                    source.unknown_share > 0.01,
                    f"{source.name}: {source.unknown_share:.2%} of the tokens are [UNK]: the "
                    "vocabulary does not fit the text",
                )
                for source in self.sources
            ),
            (
                c.removed_characters > 1e-3 * c.tokens,
                f"{c.removed_characters} control characters removed: words beside them "
                "may be fused; clean the text",
            ),
            (
                equal > 0.01 * read,
                f"{equal} of {read} documents are equal to an earlier one and were left out; check "
                "that no file was given twice",
            ),
            (
                self.duplicates > 0.01 * c.examples and not self._repeats_on_purpose,
                f"{self.duplicates} duplicate examples: the text repeats itself, or is too small "
                "for so many copies",
            ),
            *(
                (
                    self.titles > 0 and not source.titled,
                    f"{source.name}: its documents have no titles, so none was left out by title",
                )
                for source in self.sources
            ),
            (
                self.titles > 0 and not self.titles_found,
                f"none of the {self.titles} titles to leave out was met; check the list",
            ),
            (dropped > 0, f"{dropped} bytes of faulty text dropped or replaced; see the sources"),
        ]
        return [message for found, message in checks if found]

    def to_dict(self) -> dict[str, Any]:
        """Returns all figures as plain values for JSON."""
        totals = {"counts": asdict(self.counts), **self.figures, "warnings": self.warnings}
        return {**asdict(self), **totals}

    def _pair_rows(self) -> list[tuple[str, str]]:
        """Returns the table's rows on what only pairs have."""
        if self.kind == "single":
            return []
        share = f"{self.figures['label_ones_share']:.1%} of the pairs (label 1)"
        rows = [(_LABEL_ONE[self.kind], share)]
        if self.kind == "nsp":
            rows.append(("random second segments", f"{self.counts.borrowed:,} tokens on top"))
        return rows

    def table(self) -> str:
        """Returns the report as text of two columns, warnings last."""
        c, f = self.counts, self.figures
        rows = [row for source in self.sources for row in _source_rows(source)]
        titles = f"{self.titles_found:,} of {self.titles:,} were met"
        uses = f"; {c.used:,} with copies and weights" * (c.used != c.tokens)
        exact = "" if self.duplicates_share == 1 else f" (from {self.duplicates_share:.2%} of all)"
        rows += [
            ("documents", f"{c.documents:,} ({c.documents_empty:,} without a token)"),
            ("sentences", f"{c.sentences:,} ({f['mean_sentences']:.1f} per document)"),
            ("tokens read", f"{c.tokens:,}{uses}"),
            ("tokens written", f"{c.written:,} ({f['kept_share']:.2%})"),
            ("tokens truncated", f"{c.truncated:,}"),
            ("sentences split", f"{c.split_sentences:,} longer than a row"),
            ("examples", f"{c.examples:,} ({self.kind})"),
            *self._pair_rows(),
            ("duplicate examples", f"{self.duplicates:,}{exact}"),
            ("[UNK]", f"{f['unknown_share']:.3%} of the tokens"),
            ("removed characters", f"{c.removed_characters:,}"),
            ("tokens per row", f"{f['mean_row_tokens']:.1f} of {self.seq_length}"),
            ("padding", f"{f['padding_share']:.1%}"),
            *([("titles left out", titles)] if self.titles else []),
            ("special ids", "  ".join(f"{t} {id}" for t, id in self.special_ids.items())),
        ]
        peak = max(1, *c.lengths)
        for i, count in enumerate(c.lengths):
            low, high = (j * self.seq_length // LENGTH_BINS for j in (i, i + 1))
            rows.append((f"  rows of {low + 1}-{high}", f"{count:,} {'#' * (30 * count // peak)}"))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, *(f"WARNING: {text}" for text in self.warnings)]) + "\n"


def _source_rows(source: SourceReport) -> list[tuple[str, str]]:
    """Returns the table's rows on one source."""
    left_out = {
        **source.skipped,
        "excluded by title": source.excluded,
        "duplicates": source.duplicates,
        "lines skipped": source.lines_skipped,
        "bytes dropped": source.bytes_dropped,
    }
    c = source.counts
    size = f"{source.bytes / 1e6:,.1f} MB" if source.bytes >= 1e6 else f"{source.bytes:,} bytes"
    weight = f", weight {source.weight:g}" * (source.weight != 1)
    here = f"{c.documents:,} of its {source.documents:,} documents in this set"
    rows = [
        (source.name, f"{size}, {here}{weight}"),
        ("", f"{c.sentences:,} sentences, {c.tokens:,} tokens, {source.unknown_share:.3%} [UNK]"),
    ]
    if any(left_out.values()):
        rows.append(("", "left out: " + ", ".join(f"{n:,} {k}" for k, n in left_out.items() if n)))
    return rows + [("", fault) for fault in source.faults]


def read_report(directory: str | Path) -> DataReport:
    """Reads the data report of a record set.

    Raises:
        DataError: if it is missing or not of this program.
    """
    file = epath.Path(directory) / REPORT_FILE
    try:
        values = json.loads(file.read_bytes())
        kept = {f.name: values[f.name] for f in fields(DataReport)}
        kept["sources"] = tuple(map(_read_source, kept["sources"]))
        return DataReport(**kept)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: not a data report ({error!r}); name a record set") from error


def _read_source(values: Mapping[str, Any]) -> SourceReport:
    counts = Counts(**values["counts"])
    return SourceReport(**{**values, "counts": counts, "faults": tuple(values["faults"])})


def read_table(directory: str | Path) -> str:
    """Reads the data report of a record set as a text table; raises as `read_report`."""
    return read_report(directory).table()
