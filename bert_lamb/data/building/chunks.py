"""Documents grouped into chunks, the units of work of a build.

A chunk holds about 1 MiB of text whatever the corpus, so memory does not grow with it; and what
becomes of a chunk depends on nothing but the chunk, so any number of workers gives the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bert_lamb.data.corpus import Document

CHUNK_CHARS = 1 << 20
# Chunks of fewer documents take donors along, for more than one place to draw random text from.
_FEW_DOCUMENTS = 4


@dataclass(frozen=True)
class TaggedDocument:
    """A document on its way into a chunk.

    Attributes:
        document: the document, or one part of it.
        key: number of the document; its parts share it.
        heldout: it belongs to the held-out record set.
    """

    document: Document
    key: int
    heldout: bool = False


@dataclass(frozen=True)
class Chunk:
    """A unit of work.

    Attributes:
        index: number of the chunk in its record set.
        heldout: it belongs to the held-out record set.
        documents: what pairs are made of.
        donors: other documents, only good for random second segments.
    """

    index: int
    heldout: bool
    documents: tuple[TaggedDocument, ...]
    donors: tuple[TaggedDocument, ...]

    @property
    def chars(self) -> int:
        """Length of the text in characters."""
        return sum(len(tagged.document.text) for tagged in self.documents)


def chunks(
    documents: Iterable[TaggedDocument], donors: Sequence[TaggedDocument]
) -> Iterator[Chunk]:
    """Groups documents into chunks, apart for training and held-out ones.

    A last chunk that is small joins the one before it, since random second segments out of very
    few documents would be alike.

    Args:
        documents: in corpus order.
        donors: parts of two or more documents, to be lent to chunks of few documents, such as
            those inside a book.
    """
    groups = {False: _Group(False, donors), True: _Group(True, donors)}
    for tagged in documents:
        yield from groups[tagged.heldout].add(tagged)
    for group in groups.values():
        yield from group.finish()


class _Group:
    """Collects the chunks of one record set; always holds back one full chunk."""

    def __init__(self, heldout: bool, donors: Sequence[TaggedDocument]) -> None:
        self._heldout = heldout
        self._donors = donors
        self._index = 0
        self._full: list[TaggedDocument] = []
        self._open: list[TaggedDocument] = []
        self._chars = 0

    def add(self, tagged: TaggedDocument) -> Iterator[Chunk]:
        self._open.append(tagged)
        self._chars += len(tagged.document.text)
        if self._chars >= CHUNK_CHARS:
            yield from self._emit(self._full)
            self._full, self._open, self._chars = self._open, [], 0

    def finish(self) -> Iterator[Chunk]:
        if self._chars < CHUNK_CHARS // 2 or len(self._open) < _FEW_DOCUMENTS:
            yield from self._emit(self._full + self._open)
        else:
            yield from self._emit(self._full)
            yield from self._emit(self._open)

    def _emit(self, documents: list[TaggedDocument]) -> Iterator[Chunk]:
        if not documents:
            return
        keys = {tagged.key for tagged in documents}
        donors = [donor for donor in self._donors if donor.key not in keys]
        lent = tuple(donors) if len(keys) < _FEW_DOCUMENTS else ()
        yield Chunk(self._index, self._heldout, tuple(documents), lent)
        self._index += 1
