"""The first stage of a build: sources are read once, counted, hashed and laid down in blocks."""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from etils import epath

from bert_lamb.data.building.pool import advance
from bert_lamb.data.building.storage import DamagedWorkError, load_json, replacing, save_json
from bert_lamb.data.building.texts import Block, BlockWriter, Piece
from bert_lamb.data.corpus import ReadStats, Source, Split
from bert_lamb.data.corpus.titles import normalize_title

# Small files are read together, so that documents find others beside them to draw from.
UNIT_BYTES = 8 << 20
DONOR_CHARS = 1 << 14
_DONORS = 2  # from either end of a unit
HASH = np.dtype([("high", "<u8"), ("low", "<u8")])


@dataclass(frozen=True)
class Unit:
    """Splits of one source that are read by one process, one after the other.

    Attributes:
        number: of the unit in the build.
        source: number of the source.
        splits: what to read.
    """

    number: int
    source: int
    splits: tuple[Split, ...]


def units(sources: Sequence[Source]) -> list[Unit]:
    """Groups the splits of each source into units of at least UNIT_BYTES as stored."""
    found: list[Unit] = []
    for number, source in enumerate(sources):
        waiting: list[Split] = []
        size = 0
        for split in source.splits:
            waiting.append(split)
            size += split.size
            if size >= UNIT_BYTES:
                found.append(Unit(len(found), number, tuple(waiting)))
                waiting, size = [], 0
        if waiting:
            found.append(Unit(len(found), number, tuple(waiting)))
    return found


@dataclass(frozen=True)
class Gathered:
    """What reading a unit found.

    Attributes:
        documents: documents kept; they are numbered from 0.
        titled: documents that have a title.
        excluded: documents left out for their title.
        titles_found: the titles to leave out that were met, normalized.
        chars: characters of the documents kept.
        donors: the beginnings of its first and its last two documents that hold a word, by the
            documents' numbers.
        blocks: where the texts are.
        hashes: file of a 128-bit hash for each document kept.
        reading: counts of corpus.ReadStats, by name.
        sha256: of all bytes read.
    """

    documents: int
    titled: int
    excluded: int
    titles_found: tuple[str, ...]
    chars: int
    donors: tuple[tuple[int, str], ...]
    blocks: tuple[Block, ...]
    hashes: str
    reading: dict[str, Any]
    sha256: str


@dataclass(frozen=True)
class Gather:
    """Reads units.

    Attributes:
        folder: where the blocks go.
        excluded_titles: normalized titles of documents to leave out.
        block_chars: size of the blocks.
    """

    folder: str
    excluded_titles: frozenset[str]
    block_chars: int

    def run(self, unit: Unit) -> None:
        """Reads a unit, unless that was done before.

        Raises:
            DataError: for a fault in the text that the source does not tolerate.
        """
        if load_json(self._summary(unit)) is not None:
            return
        folder, name = epath.Path(self.folder), f"{unit.number:05d}"
        writer = BlockWriter(folder, name, self.block_chars)
        stats, hashes = ReadStats(), bytearray()
        first_donors: list[tuple[int, str]] = []
        last_donors: deque[tuple[int, str]] = deque(maxlen=_DONORS)
        documents = chars = titled = excluded = read = 0
        met: set[str] = set()
        kept, digest = False, hashlib.blake2b(digest_size=16)
        for split in unit.splits:
            for document in split.read(stats):
                if document.part == 0:
                    if kept:
                        hashes += digest.digest()
                    title = normalize_title(document.title)
                    kept = title not in self.excluded_titles
                    titled += bool(title)
                    if kept:
                        documents += 1
                    else:
                        excluded += 1
                        met.add(title)
                    digest = hashlib.blake2b(digest_size=16)
                    beginning = document.text[:DONOR_CHARS]
                    if kept and any(map(str.isalnum, beginning)):
                        full = len(first_donors) == _DONORS
                        (last_donors if full else first_donors).append((documents - 1, beginning))
                if kept:
                    digest.update(document.text.encode())
                    writer.add(Piece(documents - 1, document.part, document.text))
                    chars += len(document.text)
                advance(stats.bytes - read)
                read = stats.bytes
        if kept:
            hashes += digest.digest()
        writer.close()
        with replacing(folder / f"{name}.hashes") as out:
            out.write(hashes)
        reading = {key: value for key, value in vars(stats).items() if key != "sha256"}
        found = Gathered(
            documents,
            titled,
            excluded,
            tuple(sorted(met)),
            chars,
            (*first_donors, *last_donors),
            tuple(writer.blocks),
            str(folder / f"{name}.hashes"),
            reading,
            stats.sha256.hexdigest(),
        )
        save_json(self._summary(unit), asdict(found))

    def load(self, unit: Unit) -> Gathered:
        """Returns what `run` found."""
        values = load_json(self._summary(unit))
        assert values is not None, f"unit {unit.number} was not read"
        blocks = tuple(Block(**block) for block in values["blocks"])
        donors = tuple((number, text) for number, text in values["donors"])
        found = {"titles_found": tuple(values["titles_found"])}
        return Gathered(**values | found | {"blocks": blocks, "donors": donors})

    def _summary(self, unit: Unit) -> epath.Path:
        return epath.Path(self.folder) / f"{unit.number:05d}.json"


def read_hashes(gathered: Gathered) -> np.ndarray:
    """Returns the hashes of the documents of a unit. HASH [n]."""
    try:
        data = epath.Path(gathered.hashes).read_bytes()
    except FileNotFoundError as error:
        raise DamagedWorkError(gathered.hashes) from error
    if len(data) != HASH.itemsize * gathered.documents:
        raise DamagedWorkError(gathered.hashes)
    return np.frombuffer(data, HASH)
