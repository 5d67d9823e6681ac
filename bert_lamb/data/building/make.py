"""The second stage of a build: blocks of text to packed examples."""

import functools
import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import PurePath

import numpy as np
from etils import epath

from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.parts import write_part
from bert_lamb.data.building.pool import advance
from bert_lamb.data.building.report import LENGTH_BINS, Counts
from bert_lamb.data.building.storage import load_json, replacing, save_json
from bert_lamb.data.building.texts import Block, Piece, read_block
from bert_lamb.data.examples import Documents, Examples, make_examples
from bert_lamb.data.records.format import id_dtype, pack_all, payload
from bert_lamb.data.sentences import split_sentences
from bert_lamb.data.tokenization import Tokenizer, load_tokenizer

# Chunks of fewer documents take donors along, for more than one place to draw random text from.
_FEW_DOCUMENTS = 4

TRAIN, HELDOUT = "train", "heldout"


@dataclass(frozen=True)
class Task:
    """A block and what is to become of it.

    Attributes:
        block: the text.
        unit: number of the unit of reading it comes from.
        source: number of its source.
        offset: number, in the whole corpus, of the document that the block calls 0.
        heldout_from: documents from this number of the block's on are held out.
        dropped: numbers of documents to leave out, since they repeat earlier ones.
        weight: times each document is used; see corpus.Source.
    """

    block: Block
    unit: int
    source: int
    offset: int
    heldout_from: int
    dropped: tuple[int, ...]
    weight: float

    @property
    def name(self) -> str:
        """Names the block in the build."""
        return PurePath(self.block.file).stem


@dataclass(frozen=True)
class Part:
    """The examples that a block gave to one record set.

    Attributes:
        file: the part; "" if there is no example.
        hashes: file of a 64-bit hash for each example.
        counts: what became of the text.
        max_token_id: largest id in the examples.
        bytes: size of the examples.
    """

    file: str = ""
    hashes: str = ""
    counts: Counts = field(default_factory=Counts)
    max_token_id: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Make:
    """Makes examples.

    Attributes:
        folder: where the parts go.
        tokenizer: folder of the tokenizer.
        tokenizer_hash: its hash, since another build may have had another one there.
        options: of the build.
        donors: for each record set, beginnings of documents of its own by their numbers.
    """

    folder: str
    tokenizer: str
    tokenizer_hash: str
    options: BuildOptions
    donors: dict[str, tuple[tuple[int, str], ...]]

    def run(self, task: Task) -> None:
        """Makes the examples of a block, unless that was done before.

        Raises:
            DataError: for next-sentence pairs, if there is no other document to draw from.
        """
        summary = epath.Path(self.folder) / f"{task.name}.json"
        if load_json(summary) is not None:
            return
        pieces: dict[str, list[Piece]] = {TRAIN: [], HELDOUT: []}
        dropped = frozenset(task.dropped)
        for piece in read_block(task.block):
            if piece.number not in dropped:
                pieces[HELDOUT if piece.number >= task.heldout_from else TRAIN].append(piece)
            else:
                advance(len(piece.text))
        parts = {name: self._part(task, name, found) for name, found in pieces.items()}
        save_json(summary, {name: asdict(part) for name, part in parts.items()})

    def load(self, task: Task) -> dict[str, Part]:
        """Returns what `run` made for each record set."""
        values = load_json(epath.Path(self.folder) / f"{task.name}.json")
        assert values is not None, f"block {task.name} was not worked on"
        return {
            name: Part(**part | {"counts": Counts(**part["counts"])})
            for name, part in values.items()
        }

    def _part(self, task: Task, name: str, pieces: Sequence[Piece]) -> Part:
        """Makes the examples that a block gives to one record set."""
        maker = _ChunkMaker(self, task, self.donors[name], Counts())
        records: list[bytes] = []
        for number, chunk in enumerate(chunks(pieces, self.options.chunk_chars)):
            records += maker.records(chunk, f"{name}/{task.name}/{number}")
            advance(sum(len(piece.text) for piece in chunk))
        if not records:
            return Part(counts=maker.counts)
        folder = epath.Path(self.folder)
        file, hashes = folder / f"{task.name}.{name}", folder / f"{task.name}.{name}.hashes"
        with replacing(hashes) as out:
            digests = (hashlib.blake2b(record, digest_size=8).digest() for record in records)
            out.write(b"".join(digests))
        size = write_part(file, records, self.options.num_shards)
        largest = int(payload(records, maker.dtype).max())
        return Part(str(file), str(hashes), maker.counts, largest, size)


@dataclass
class _ChunkMaker:
    """Makes the packed examples of the chunks of a block and counts what became of the text."""

    make: Make
    task: Task
    donors: Sequence[tuple[int, str]]
    counts: Counts

    def __post_init__(self) -> None:
        self.options = self.make.options
        self.tokenizer = _load_tokenizer(self.make.tokenizer, self.make.tokenizer_hash)
        self.dtype = id_dtype(self.tokenizer.vocab_size)

    def records(self, chunk: Sequence[Piece], name: str) -> list[bytes]:
        """Makes the examples of a chunk; `name` sets its random stream apart."""
        keys = np.array([self.task.offset + piece.number for piece in chunk])
        text = self._encode([piece.text for piece in chunk], keys)
        self._count_text(chunk, text)
        uses = np.array([self._uses(key) for key in keys.tolist()])
        records: list[bytes] = []
        for copy in range(self.options.copies):
            for turn in range(uses.max()):
                chosen = text if (uses > turn).all() else text.choose(uses > turn)
                self.counts.used += len(chosen.ids)
                # A string seeds by its hash (SHA-512), so neighbouring numbers give unrelated
                # streams.
                rng = random.Random(f"{self.options.seed}/{name}/{copy}/{turn}")
                examples = make_examples(
                    self._with_donors(chosen), self.options.examples, rng, self.counts,
                    sep_id=self.tokenizer.sep_id,
                )  # fmt: skip
                self._count_examples(examples)
                records += pack_all(examples, self.dtype)
        return records

    def _encode(self, texts: Sequence[str], keys: np.ndarray) -> Documents:
        documents = [split_sentences(text, self.options.language) for text in texts]
        encoded = self.tokenizer.encode_flat(list(chain.from_iterable(documents)))
        self.counts.removed_characters += encoded.removed
        ends = np.concatenate([[0], encoded.ends])
        return Documents(
            encoded.ids.astype(self.dtype),
            encoded.ends,
            ends[np.cumsum(list(map(len, documents)), dtype=np.int64)],
            keys,
        )

    def _uses(self, number: int) -> int:
        """Returns how often a document is used: the weight, its fraction drawn by lot."""
        whole = int(self.task.weight)
        if whole == self.task.weight:
            return whole
        lot = hashlib.blake2b(f"{self.options.seed}/{number}".encode(), digest_size=8).digest()
        return whole + (int.from_bytes(lot, "little") < (self.task.weight - whole) * 2**64)

    def _with_donors(self, text: Documents) -> Documents:
        """Adds the donors to few documents, if the kind of examples needs others."""
        keys = set(text.keys[np.diff(text.document_ends, prepend=0) > 0].tolist())
        if self.options.examples.min_documents < 2 or len(keys) >= _FEW_DOCUMENTS:
            return text
        lent = [(key, donor) for key, donor in self.donors if key not in keys]
        if not lent:
            return text
        removed = self.counts.removed_characters
        donors = self._encode(
            [donor for _, donor in lent], np.array([key for key, _ in lent], np.int64)
        )
        self.counts.removed_characters = removed  # counted where they are at home
        return text.lend(donors)

    def _count_text(self, chunk: Sequence[Piece], text: Documents) -> None:
        counts = self.counts
        counts.documents += sum(piece.part == 0 for piece in chunk)
        counts.documents_empty += int((np.diff(text.document_ends, prepend=0) == 0).sum())
        counts.sentences += int((np.diff(text.sentence_ends, prepend=0) > 0).sum())
        counts.tokens += len(text.ids)
        counts.unknown += int((text.ids == self.tokenizer.unk_id).sum())

    def _count_examples(self, examples: Examples) -> None:
        if not len(examples):
            return
        counts, lengths = self.counts, examples.lengths
        counts.examples += len(examples)
        counts.label_ones += int(examples.labels.sum())
        counts.row_tokens += int(lengths.sum())
        bins = (lengths - 1) * LENGTH_BINS // self.options.examples.seq_length
        for i, number in enumerate(np.bincount(bins, minlength=LENGTH_BINS).tolist()):
            counts.lengths[i] += number


@functools.lru_cache(maxsize=2)
def _load_tokenizer(folder: str, hash: str) -> Tokenizer:
    """Loads a tokenizer once for each process; `hash` is part of what it is kept by."""
    return load_tokenizer(folder)


def chunks(pieces: Iterable[Piece], limit: int) -> Iterator[list[Piece]]:
    """Groups the pieces of a block into chunks of about `limit` characters.

    A last chunk that is small joins the one before it, since random second segments out of very
    few documents would be alike.
    """
    full: list[Piece] = []
    growing: list[Piece] = []
    chars = 0
    for piece in pieces:
        growing.append(piece)
        chars += len(piece.text)
        if chars >= limit:
            if full:
                yield full
            full, growing, chars = growing, [], 0
    if chars < limit // 2 or len(growing) < _FEW_DOCUMENTS:
        full, growing = full + growing, []
    yield from filter(None, (full, growing))
