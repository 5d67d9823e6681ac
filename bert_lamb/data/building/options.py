"""Everything that decides what a build makes of its text."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import bert_lamb
from bert_lamb.data.corpus import Source
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import ExampleOptions
from bert_lamb.data.records.manifest import FORMAT_VERSION
from bert_lamb.data.sentences import check_language
from bert_lamb.data.tokenization import Tokenizer

# Text in a piece of work, which bounds the memory of a process.
BLOCK_CHARS = 8 << 20
# Text that draws its random second segments from among itself.
CHUNK_CHARS = 1 << 20


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build; equal text and options give equal bytes.

    Attributes:
        examples: what the rows are: their length, pairs or single segments.
        seed: of all random choices.
        num_shards: files per record set.
        heldout: share of the documents of each source, the last ones, to hold out.
        copies: times to go through each document with other random choices (Google's dupe factor).
            Masks differ between the copies in any case, as they are drawn while training.
        language: code of the language whose rules divide the text into sentences.
        excluded_titles: titles, as corpus.titles normalizes them, of documents to leave out.
        block_chars: characters of text in a piece of work; for tests.
        chunk_chars: characters of text that draws its random second segments from among itself;
            for tests.

    Raises:
        DataError: for an impossible value.
    """

    examples: ExampleOptions
    seed: int = 0
    num_shards: int = 8
    heldout: float = 0.0
    copies: int = 1
    language: str = "en"
    excluded_titles: frozenset[str] = frozenset()
    block_chars: int = BLOCK_CHARS
    chunk_chars: int = CHUNK_CHARS

    def __post_init__(self) -> None:
        for key, most in (("num_shards", 100_000), ("copies", 1_000)):
            if not 1 <= getattr(self, key) <= most:
                raise DataError(
                    f"{key} = {getattr(self, key)}: expected at least 1, at most {most}"
                )
        if not 0 <= self.heldout < 1:
            raise DataError(f"heldout = {self.heldout}: expected a share in [0, 1)")
        check_language(self.language)
        examples = self.examples
        if self.copies > 1 and examples.kind == "single" and not examples.resolved_short_seq_prob:
            raise DataError(
                f"copies = {self.copies}: nothing is drawn at random for single segments of full "
                "length, so the copies would be equal; make one (masks differ in every epoch), or "
                "set short_seq_prob"
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the options as plain values for JSON; of the titles their hash and number."""
        titles = "\n".join(sorted(self.excluded_titles))
        return asdict(self) | {
            "excluded_titles": {
                "number": len(self.excluded_titles),
                "sha256": hashlib.sha256(titles.encode()).hexdigest(),
            }
        }


def fingerprint(
    sources: Sequence[Source], tokenizer: Tokenizer, options: BuildOptions
) -> dict[str, Any]:
    """Returns what a build depends on, for an interrupted one to compare itself with."""
    return {
        "sources": [
            {
                "name": source.name,
                "weight": source.weight,
                "splits": [
                    [repr(split), split.size, _modified(split.name)] for split in source.splits
                ],
            }
            for source in sources
        ],
        "tokenizer": tokenizer.hash,
        "options": options.to_dict(),
        "version": [bert_lamb.__version__, FORMAT_VERSION],
    }


def _modified(name: str) -> int:
    """Returns when a local file was changed last, in nanoseconds; 0 for anything else."""
    try:
        return os.stat(name).st_mtime_ns
    except (OSError, ValueError):
        return 0
