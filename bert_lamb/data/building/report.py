"""The data report: what was read, written and dropped, and what looks wrong."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.pairs import PairCounts

REPORT_FILE = "data_report.json"
LENGTH_BINS = 8
_KEPT_HASHES = 1 << 20


@dataclass
class Counts(PairCounts):
    """What became of the documents; counts of several chunks add up.

    Attributes:
        documents: documents read (a long one once, whatever its parts).
        documents_empty: documents, or parts of one, without any token.
        sentences: sentences with at least one token.
        tokens: tokens of all sentences.
        unknown: [UNK] among them.
        removed_characters: control and format characters that the tokenizer's rules remove, which
            fuses the words beside them.
        examples: examples made.
        random_next: examples whose second segment is from another document.
        lengths: examples by row length without padding, in equal bins up to seq_length.
        row_tokens: tokens of all rows without padding, special tokens included.
    """

    documents: int = 0
    documents_empty: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown: int = 0
    removed_characters: int = 0
    examples: int = 0
    random_next: int = 0
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


class DuplicateCounter:
    """Counts examples that are exactly equal to an earlier one, in bounded memory.

    It keeps the 64-bit hashes below a limit. Whenever more than 2**20 distinct ones are kept
    (8 MiB), the limit is halved: from then on the count is an estimate from a known share of all
    examples, the same for equal examples. Two different examples share a hash with a probability
    of 1e-7 in a million examples.
    """

    def __init__(self) -> None:
        self._seen = np.empty(0, np.uint64)
        self._kept_bits = 64
        self._repeats = 0

    def add(self, hashes: np.ndarray) -> None:
        """Counts the examples with these hashes. uint64 [n]."""
        kept = hashes[hashes <= self._limit]
        before = len(self._seen)
        self._seen = np.union1d(self._seen, kept)
        self._repeats += len(kept) - (len(self._seen) - before)
        while len(self._seen) > _KEPT_HASHES:
            self._kept_bits -= 1
            self._seen = self._seen[self._seen <= self._limit]
            self._repeats //= 2

    @property
    def _limit(self) -> np.uint64:
        return np.uint64(2**self._kept_bits - 1)

    @property
    def share(self) -> float:
        """Share of examples that are looked at; 1.0 while the count is exact."""
        return 2.0 ** (self._kept_bits - 64)

    @property
    def duplicates(self) -> int:
        """Examples equal to an earlier one, scaled up from the share looked at."""
        return round(self._repeats / self.share)


@dataclass(frozen=True)
class SourceReport:
    """What reading one source met with; see corpus.ReadStats for the fields."""

    name: str
    files: int
    documents: int
    bytes: int
    lines: int
    lines_skipped: int
    bytes_dropped: int
    faults: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class DataReport:
    """The report on one record set. It holds no times, so equal inputs give equal reports.

    Attributes:
        sources: what was read, held-out documents included.
        counts: what became of the documents of this record set.
        copies: times each document was gone through with other random choices.
        seq_length: tokens per row T.
        duplicates: examples exactly equal to an earlier one.
        duplicates_share: share of the examples on which `duplicates` rests; 1.0 is exact.
    """

    sources: tuple[SourceReport, ...]
    counts: Counts
    copies: int
    seq_length: int
    duplicates: int
    duplicates_share: float

    @property
    def kept_share(self) -> float:
        """Share of the documents' tokens that got into examples."""
        return self.counts.written / max(1, self.counts.tokens * self.copies)

    @property
    def random_next_share(self) -> float:
        """Share of examples whose second segment is from another document."""
        return self.counts.random_next / max(1, self.counts.examples)

    @property
    def mean_sentences(self) -> float:
        """Sentences per document."""
        filled = max(1, self.counts.documents - self.counts.documents_empty)
        return self.counts.sentences / filled

    @property
    def padding_share(self) -> float:
        """Share of all positions that is padding."""
        return 1 - self.counts.row_tokens / max(1, self.counts.examples * self.seq_length)

    @property
    def unknown_share(self) -> float:
        """Share of the tokens that is [UNK]."""
        return self.counts.unknown / max(1, self.counts.tokens)

    @property
    def warnings(self) -> list[str]:
        """What looks wrong, each with its figure and what to do."""
        dropped = sum(source.bytes_dropped for source in self.sources)
        checks = [
            (
                self.mean_sentences < 1.5,
                f"{self.mean_sentences:.2f} sentences per document: nearly every second segment "
                "is random; check that blank lines divide documents, not sentences",
            ),
            (
                not 0.4 <= self.random_next_share <= 0.6,
                f"{self.random_next_share:.1%} of the pairs are random-next, expected 40-60 %: "
                "the next-sentence loss is nearly decided by the label's frequency",
            ),
            (
                self.kept_share < 0.85,
                f"{self.kept_share:.1%} of the tokens were kept: sentences are long for rows of "
                f"{self.seq_length}; take longer rows or shorter sentences",
            ),
            (
                self.unknown_share > 0.01,
                f"{self.unknown_share:.2%} of the tokens are [UNK]: the vocabulary does not fit "
                "the text",
            ),
            (
                self.counts.removed_characters > 1e-5 * self.counts.tokens,
                f"{self.counts.removed_characters} control characters removed: words beside them "
                "may be fused; clean the text",
            ),
            (
                self.duplicates > 0.01 * self.counts.examples,
                f"{self.duplicates} duplicate examples: the text repeats itself, or is too small "
                "for so many copies",
            ),
            (dropped > 0, f"{dropped} bytes of faulty text dropped or replaced; see the sources"),
        ]
        return [message for found, message in checks if found]

    def to_dict(self) -> dict[str, Any]:
        """Returns all figures as plain values for JSON."""
        return {
            **asdict(self),
            "kept_share": round(self.kept_share, 6),
            "random_next_share": round(self.random_next_share, 6),
            "mean_sentences": round(self.mean_sentences, 3),
            "mean_row_tokens": round(self.counts.row_tokens / max(1, self.counts.examples), 3),
            "padding_share": round(self.padding_share, 6),
            "unknown_share": round(self.unknown_share, 6),
            "warnings": self.warnings,
        }

    def table(self) -> str:
        """Returns the report as text of two columns, warnings last."""
        c = self.counts
        rows: list[tuple[str, str]] = []
        for s in self.sources:
            faults = f", {s.lines_skipped} lines skipped, {s.bytes_dropped} bytes dropped"
            read = f"{s.documents:,} documents, {s.bytes / 1e6:,.1f} MB"
            rows.append((s.name, read + faults * bool(s.lines_skipped or s.bytes_dropped)))
            rows += [("", fault) for fault in s.faults]
        exact = "" if self.duplicates_share == 1 else f" (from {self.duplicates_share:.2%} of all)"
        peak = max(1, *c.lengths)
        rows += [
            ("documents", f"{c.documents:,} ({c.documents_empty:,} without a token)"),
            ("sentences", f"{c.sentences:,} ({self.mean_sentences:.1f} per document)"),
            ("tokens read", f"{c.tokens:,} x {self.copies} copies"),
            ("tokens written", f"{c.written:,} ({self.kept_share:.2%})"),
            ("tokens truncated", f"{c.truncated:,}"),
            ("random second segments", f"{c.borrowed:,} tokens on top"),
            ("sentences split", f"{c.split_sentences:,} longer than a row"),
            ("examples", f"{c.examples:,}"),
            ("random next", f"{self.random_next_share:.1%}"),
            ("duplicates", f"{self.duplicates:,}{exact}"),
            ("[UNK]", f"{self.unknown_share:.3%} of the tokens"),
            ("removed characters", f"{c.removed_characters:,}"),
            ("tokens per row", f"{c.row_tokens / max(1, c.examples):.1f} of {self.seq_length}"),
            ("padding", f"{self.padding_share:.1%}"),
        ]
        for i, count in enumerate(c.lengths):
            low, high = (j * self.seq_length // LENGTH_BINS for j in (i, i + 1))
            rows.append((f"  rows of {low + 1}-{high}", f"{count:,} {'#' * (30 * count // peak)}"))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, *(f"WARNING: {text}" for text in self.warnings)]) + "\n"


def read_report(directory: str | Path) -> DataReport:
    """Reads the data report of a record set.

    Raises:
        DataError: if it is missing or not of this program.
    """
    file = epath.Path(directory) / REPORT_FILE
    try:
        values = json.loads(file.read_bytes())
        kept = {f.name: values[f.name] for f in fields(DataReport)}
        kept["sources"] = tuple(SourceReport(**source) for source in kept["sources"])
        kept["counts"] = Counts(**kept["counts"])
        return DataReport(**kept)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not a data report ({error!r}); name a record set") from error


def read_table(directory: str | Path) -> str:
    """Reads the data report of a record set as a text table; raises as `read_report`."""
    return read_report(directory).table()
