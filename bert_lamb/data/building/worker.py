"""The work of a build: a chunk of documents to packed records, here or in a pool of processes."""

import hashlib
import multiprocessing
import os
import random
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert_lamb.data.building.chunks import Chunk, TaggedDocument
from bert_lamb.data.building.report import LENGTH_BINS, Counts
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.pairs import SPECIALS_PER_ROW, PairMaker, Sentences
from bert_lamb.data.records.format import id_dtype, pack
from bert_lamb.data.sentences import split_sentences
from bert_lamb.data.tokenization import Tokenizer

# Cc and Cf but for tab and line ends, and U+FFFD: what Google's BasicTokenizer drops.
_REMOVED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\ufffd"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f]"
)


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to know besides the chunk."""

    tokenizer: Tokenizer
    seq_length: int
    seed: int
    copies: int


@dataclass
class Outcome:
    """What a worker hands back for a chunk."""

    heldout: bool
    chars: int
    records: list[bytes] = field(default_factory=list)
    max_token_id: int = 0
    counts: Counts = field(default_factory=Counts)

    @property
    def hashes(self) -> np.ndarray:
        """A 64-bit hash of each record. uint64 [n]."""
        digests = (hashlib.blake2b(record, digest_size=8).digest() for record in self.records)
        return np.frombuffer(b"".join(digests), "<u8")


def work(
    units: Iterable[Chunk], recipe: Recipe, tokenizer_dir: Path, workers: int
) -> Iterator[Outcome]:
    """Yields the outcomes of `units` in order, with a bounded number of them in flight."""
    if workers == 1:
        yield from (process_chunk(recipe, unit) for unit in units)
        return
    pool = ProcessPoolExecutor(
        workers,
        # Not fork: the tokenizer's threads, and JAX's if the caller uses it, do not survive it.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(tokenizer_dir, recipe.seq_length, recipe.seed, recipe.copies),
    )
    flying: deque[Future[Outcome]] = deque()
    try:
        for unit in units:
            flying.append(pool.submit(_process_in_worker, unit))
            if len(flying) > 2 * workers:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            f"a worker process died ({error}); most often memory ran out: use fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_recipe: Recipe | None = None  # of a worker process


def _start_worker(tokenizer_dir: Path, seq_length: int, seed: int, copies: int) -> None:
    global _recipe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes take up the cores
    _recipe = Recipe(Tokenizer.load(tokenizer_dir), seq_length, seed, copies)


def _process_in_worker(chunk: Chunk) -> Outcome:
    assert _recipe is not None
    return process_chunk(_recipe, chunk)


def process_chunk(recipe: Recipe, chunk: Chunk) -> Outcome:
    """Makes the records of a chunk."""
    outcome = Outcome(chunk.heldout, chunk.chars)
    counts = outcome.counts
    documents, keys = [], []
    for tagged in chunk.documents:
        sentences = _encode(recipe.tokenizer, tagged)
        counts.documents += tagged.document.part == 0
        counts.documents_empty += not sentences
        counts.sentences += len(sentences)
        counts.removed_characters += _count_removed(tagged.document.text)
        for ids in sentences:
            counts.tokens += len(ids)
            counts.unknown += ids.count(recipe.tokenizer.unk_id)
        if sentences:
            documents.append(sentences)
            keys.append(tagged.key)
    if not documents:
        return outcome
    donors = [lent for donor in chunk.donors if (lent := _encode(recipe.tokenizer, donor))]
    dtype = id_dtype(recipe.tokenizer.vocab_size)
    for copy in range(recipe.copies):
        # A string seeds by its hash (SHA-512), so neighbouring numbers give unrelated streams.
        rng = random.Random(f"{recipe.seed}/{int(chunk.heldout)}/{chunk.index}/{copy}")
        maker = PairMaker(recipe.seq_length, rng, counts)
        for example in maker.pairs(documents, keys, donors):
            outcome.records.append(pack(example, dtype))
            highest = max(max(example.ids_a), max(example.ids_b))
            outcome.max_token_id = max(outcome.max_token_id, highest)
            length = len(example.ids_a) + len(example.ids_b) + SPECIALS_PER_ROW
            counts.examples += 1
            counts.random_next += example.is_random
            counts.row_tokens += length
            counts.lengths[(length - 1) * LENGTH_BINS // recipe.seq_length] += 1
    return outcome


def _encode(tokenizer: Tokenizer, tagged: TaggedDocument) -> Sentences:
    """Returns the sentences of a document as ids, without empty ones."""
    encoded = tokenizer.encode_batch(split_sentences(tagged.document.text))
    return [ids for ids in encoded if ids]


def _count_removed(text: str) -> int:
    if text.isascii() and text.isprintable():
        return 0
    return len(_REMOVED.findall(text))
