"""The first pass over a corpus: it counts and hashes the sources and meets their faults."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bert_lamb.data.building.chunks import TaggedDocument
from bert_lamb.data.building.report import SourceReport
from bert_lamb.data.corpus import ReadStats, Source
from bert_lamb.data.errors import DataError


@dataclass(frozen=True)
class Census:
    """What the first pass over the corpus found.

    Attributes:
        sources: a report on each source.
        train_documents: for each source, how many of its documents are not held out.
        chars: characters of text.
        donors: the beginnings of the first two documents.
    """

    sources: tuple[SourceReport, ...]
    train_documents: tuple[int, ...]
    chars: int
    donors: tuple[TaggedDocument, ...]

    @classmethod
    def take(
        cls, sources: Sequence[Source], heldout: float, progress: Callable[[int], None]
    ) -> "Census":
        """Reads all sources once.

        Raises:
            DataError: if a source holds no text, or a record set would get fewer than 2 documents.
        """
        reports: list[SourceReport] = []
        train: list[int] = []
        donors: list[TaggedDocument] = []
        chars, key = 0, -1
        for source in sources:
            stats, documents = ReadStats(), 0
            for document in source.read(stats):
                if document.part == 0:
                    documents, key = documents + 1, key + 1
                    if len(donors) < 2:
                        donors.append(TaggedDocument(document, key))
                chars += len(document.text)
                progress(chars)
            if not documents:
                raise DataError(
                    f"source {source.name!r}: no text in it ({stats.bytes} bytes, all blank or "
                    "skipped); check the files"
                )
            reports.append(_source_report(source, stats, documents))
            train.append(documents - round(heldout * documents))
        held = key + 1 - sum(train)
        if sum(train) < 2:
            raise DataError(
                f"{sum(train)} document to train on ({key + 1} read, {held} held out): "
                "next-sentence prediction needs at least 2; divide the text into documents by "
                "blank lines, or add sources"
            )
        if heldout and held < 2:
            raise DataError(
                f"heldout = {heldout}: holds out {held} of {key + 1} documents, and next-sentence "
                "prediction needs at least 2; hold out more, or nothing"
            )
        return cls(tuple(reports), tuple(train), chars, tuple(donors))

    def documents(self, sources: Sequence[Source]) -> Iterator[TaggedDocument]:
        """Reads all sources again.

        Raises:
            DataError: if a source is no longer what it was.
        """
        key = -1
        for source, report, train in zip(sources, self.sources, self.train_documents, strict=True):
            stats, number = ReadStats(), -1
            for document in source.read(stats):
                if document.part == 0:
                    number, key = number + 1, key + 1
                yield TaggedDocument(document, key, heldout=number >= train)
            if stats.sha256.hexdigest() != report.sha256:
                raise DataError(f"source {source.name!r}: changed while it was read; build again")


def _source_report(source: Source, stats: ReadStats, documents: int) -> SourceReport:
    return SourceReport(
        name=source.name,
        files=stats.files,
        documents=documents,
        bytes=stats.bytes,
        lines=stats.lines,
        lines_skipped=stats.lines_skipped,
        bytes_dropped=stats.bytes_dropped,
        faults=tuple(stats.faults),
        sha256=stats.sha256.hexdigest(),
    )
