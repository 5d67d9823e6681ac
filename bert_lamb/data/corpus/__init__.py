"""Sources of text: what a user names, as a stream of documents of bounded size."""

from bert_lamb.data.corpus.document import Document, ReadStats, Source, Split, read_texts
from bert_lamb.data.corpus.sources import open_sources

__all__ = ["Document", "ReadStats", "Source", "Split", "open_sources", "read_texts"]
