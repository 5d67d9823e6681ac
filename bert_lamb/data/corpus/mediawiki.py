"""MediaWiki's XML dumps (pages-articles): the prose of their articles."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

from bert_lamb.data.corpus.document import Document, ReadStats, whole_or_parts
from bert_lamb.data.corpus.files import FileSplit
from bert_lamb.data.corpus.wikitext import Namespaces, prose
from bert_lamb.data.errors import DataError

_BLOCK_BYTES = 1 << 18
_MAX_PAGE_CHARS = 1 << 24  # Wikipedia's own limit for a page is 2 MiB
_MAX_DEPTH = 32  # a dump's own depth is 6
_MAX_TAG_BYTES = 1 << 22
_HIDDEN = {"-2", "6", "14"}  # keys of the namespaces Media, File and Category
_REDIRECT = "#redirect"


@dataclass(frozen=True)
class MediaWikiSplit(FileSplit):
    """A dump, whole or one of its numbered parts.

    Only articles (namespace 0) give documents. What gives none is counted in `ReadStats.skipped`:
    "not an article", "redirect", "not wikitext" (of another content model), "no text" (nothing
    left but tables, say) and "page over 16 MiB". Of a page with several revisions the last is
    taken. A document's id is the page's number. Entities and document types of their own, which a
    dump does not have, are refused.

    XML that is malformed or cut short is an error whatever `on_error` says, since nothing behind
    the fault can be told apart.
    """

    def _documents(self, stream: BinaryIO, stats: ReadStats) -> Iterator[Document]:
        dump = _Dump(self.name)
        while data := stream.read(_BLOCK_BYTES):
            stats.bytes += len(data)
            stats.lines += data.count(b"\n")
            stats.sha256.update(data)
            dump.feed(data)
            yield from self._articles(dump, stats)
        dump.feed(b"", last=True)
        yield from self._articles(dump, stats)

    def _articles(self, dump: "_Dump", stats: ReadStats) -> Iterator[Document]:
        for page in dump.take():
            cause = page.why_skipped()
            text = "" if cause else prose(page.values.get("text", ""), dump.namespaces)
            if text:
                id, title = page.values["id"], page.values["title"]
                yield from whole_or_parts(id or title, title, text)
            else:
                stats.skip(cause or "no text")


@dataclass
class _Page:
    """What a <page> holds: the content of its elements by their names."""

    values: dict[str, str] = field(default_factory=lambda: {"id": "", "title": ""})
    redirect: bool = False
    too_long: bool = False

    def why_skipped(self) -> str:
        """Returns why the page is no article with text, "" if it is."""
        text = self.values.get("text", "")
        if self.values.get("ns", "0").strip() != "0":
            return "not an article"
        if self.redirect or text[:20].lstrip().lower().startswith(_REDIRECT):
            return "redirect"
        if self.too_long:
            return "page over 16 MiB"
        if self.values.get("model", "wikitext") != "wikitext":
            return "not wikitext"
        return ""


# The elements whose content is kept, by the path to them.
_KEPT = {
    ("mediawiki", "page", "title"): "title",
    ("mediawiki", "page", "ns"): "ns",
    ("mediawiki", "page", "id"): "id",
    ("mediawiki", "page", "revision", "model"): "model",
    ("mediawiki", "page", "revision", "text"): "text",
}
_NAMESPACE = ("mediawiki", "siteinfo", "namespaces", "namespace")


class _Dump:
    """Takes the bytes of a dump and gives its pages, holding one block's at a time."""

    def __init__(self, file: str) -> None:
        self.namespaces = Namespaces()
        self._file = file
        self._pages: list[_Page] = []
        self._page = _Page()
        self._path: list[str] = []
        self._content: list[str] = []
        self._chars = 0
        self._key = ""
        self._fed = 0
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.buffer_size = 1 << 16
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = None
        parser.StartDoctypeDeclHandler = self._doctype
        self._parser = parser

    def feed(self, data: bytes, last: bool = False) -> None:
        """Parses the next bytes.

        Raises:
            DataError: for malformed XML or another kind of document; names file, line and byte.
        """
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            self._refuse(
                f"not well-formed XML ({expat.ErrorString(error.code)}); check that the file is "
                "complete and fetch it again",
                error.lineno, self._parser.ErrorByteIndex,
            )  # fmt: skip
        except (LookupError, ValueError) as error:
            # Expat asks Python for encodings that it does not know itself.
            if isinstance(error, DataError):
                raise
            self._refuse(f"its encoding cannot be read ({error}); convert it to UTF-8")
        self._fed += len(data)
        # Expat begins a tag that is not complete anew with every block, in quadratic time.
        if self._fed - max(0, self._parser.CurrentByteIndex) > _MAX_TAG_BYTES:
            self._refuse(f"a tag or comment over {_MAX_TAG_BYTES} bytes; this is no MediaWiki dump")

    def take(self) -> list[_Page]:
        """Returns the pages that ended since the last call."""
        pages, self._pages = self._pages, []
        return pages

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name != "mediawiki":
            self._refuse(
                f"the root element is <{name:.40}>, expected <mediawiki>; other XML has to be made "
                "into text or JSON lines first"
            )
        self._path.append(name)
        if len(self._path) > _MAX_DEPTH:
            self._refuse(f"elements nested over {_MAX_DEPTH} deep; this is no MediaWiki dump")
        path = tuple(self._path)
        if path == ("mediawiki", "page"):
            self._page = _Page()
        elif path == ("mediawiki", "page", "redirect"):
            self._page.redirect = True
        elif path in _KEPT or path == _NAMESPACE:
            self._key = attributes.get("key", "")
            self._content, self._chars = [], 0
            self._parser.CharacterDataHandler = self._characters

    def _end(self, name: str) -> None:
        path = tuple(self._path)
        self._path.pop()
        if path == ("mediawiki", "page"):
            self._pages.append(self._page)
        elif path in _KEPT:
            self._page.values[_KEPT[path]] = "".join(self._content)
            if _KEPT[path] == "text":
                self._page.too_long = self._chars > _MAX_PAGE_CHARS
        elif path == _NAMESPACE:
            self._add_namespace("".join(self._content))
        else:
            return
        self._content = []
        self._parser.CharacterDataHandler = None

    def _characters(self, data: str) -> None:
        self._chars += len(data)
        if self._chars > _MAX_PAGE_CHARS:
            self._content = []
        else:
            self._content.append(data)

    def _add_namespace(self, name: str) -> None:
        hidden, others = set(self.namespaces.hidden), set(self.namespaces.others)
        (hidden if self._key in _HIDDEN else others).add(name.strip().lower())
        self.namespaces = Namespaces(frozenset(hidden), frozenset(others))

    def _doctype(self, *_: object) -> None:
        self._refuse("a document type declaration; a MediaWiki dump has none")

    def _refuse(self, problem: str, line: int = 0, byte: int = -1) -> None:
        line = line or self._parser.CurrentLineNumber
        byte = byte if byte >= 0 else max(0, self._parser.CurrentByteIndex)
        raise DataError(f"{self._file}, line {line}, byte {byte}: {problem}")
