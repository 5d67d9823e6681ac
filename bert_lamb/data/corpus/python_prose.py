"""The English prose that every Python installation carries, as a small corpus at hand.

It is the reference topics of `help()` and the docstrings of the standard library and of this
package's dependencies: several megabytes of edited technical English, enough to try a whole
pretraining run without a download. Modules are read, never imported. The text depends on the
installed versions, so it serves trials, not published results.
"""

import ast
import functools
import importlib.util
import inspect
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bert_lamb.data.corpus.document import Document, ReadStats, split_parts

# Top-level packages read besides the standard library; those not installed are passed over.
_PACKAGES = (
    "absl",
    "array_record",
    "etils",
    "flax",
    "fsspec",
    "grain",
    "jax",
    "ml_collections",
    "numpy",
    "optax",
    "orbax",
    "scipy",
    "tensorstore",
)
# Test code repeats itself; pip and setuptools, where they lie in the standard library, are copies.
_SKIPPED_FOLDERS = re.compile(r"_*(tests?|testing|testdata|site-packages|lib2to3|ensurepip)")

# Comments and all kinds of strings, so that a quote inside one is not taken for the next's begin.
# Parsing whole modules with `ast` takes three times as long; the price of looking for strings is an
# occasional block of text that is no docstring.
_STRING = re.compile(
    r"#[^\n]*|(?P<prefix>[rRbBuUfF]{0,2})(?:"
    r"(?P<long>\"{3}[^\"\\]*(?:(?:\\.|\"(?!\"\"))[^\"\\]*)*\"{3}"
    r"|'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'{3})"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')",
    re.DOTALL,
)
_MIN_WORDS = 8
_MIN_CHARS = 40
_MIN_PARAGRAPHS = 2
_ROLE = re.compile(r":[\w:+-]+:`([^`<]*)(?: <[^`>]*>)?`")
_MARKUP = re.compile(r"``|`_{1,2}|[`]|\*\*|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)")
_WORD = re.compile(r"""["'(\[]*[A-Za-z]+(?:[-'/][A-Za-z]+)*[.,;:!?"')\]]*""")
_SECTION = re.compile(r"\w[\w ]*:")
_NOT_PROSE = re.compile(
    r">>>|\.\. |::$|:param|@param|\S+ : |[-=~^*+#|]{3,}| = |[{}<>|\\]|\w\(.*\w="
)


@functools.cache
def documents() -> tuple[tuple[str, str], ...]:
    """Returns (name, text) of each help topic and module with prose, in a fixed order.

    Each line of a text is a paragraph; no paragraph comes twice. Gathering takes seconds, so the
    texts (a few megabytes) are kept for the next call.
    """
    seen: set[str] = set()
    found = []
    for name, texts in _sources():
        paragraphs = []
        for text in texts:
            for paragraph in _prose(text):
                if paragraph not in seen:
                    seen.add(paragraph)
                    paragraphs.append(paragraph)
        if len(paragraphs) >= _MIN_PARAGRAPHS:
            found.append((name, "\n".join(paragraphs)))
    return tuple(found)


def _sources() -> Iterator[tuple[str, Iterable[str]]]:
    """Yields each topic and module with its texts."""
    library = Path(sysconfig.get_path("stdlib"))
    topics = ast.parse((library / "pydoc_data" / "topics.py").read_bytes())
    for node in ast.walk(topics):
        if isinstance(node, ast.Dict):
            for name, text in sorted(ast.literal_eval(node).items()):
                yield f"help:{name}", [text]
    yield from _modules(library, "")
    for package in _PACKAGES:
        # Finding a top-level package runs none of its code.
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            yield from _modules(Path(folder), f"{package}/")


def _modules(folder: Path, prefix: str) -> Iterator[tuple[str, Iterable[str]]]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not _SKIPPED_FOLDERS.fullmatch(entry.name):
            yield from _modules(entry, f"{prefix}{entry.name}/")
        elif entry.suffix == ".py" and entry.is_file():
            yield f"{prefix}{entry.name}", _docstrings(entry.read_text("utf-8", "replace"))


def _docstrings(source: str) -> Iterator[str]:
    """Yields the triple-quoted strings that begin a line: docstrings, but for a few."""
    for match in _STRING.finditer(source):
        literal = match[0]
        begins_line = not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        if not match["long"] or not begins_line or "b" in match["prefix"].lower():
            continue
        text = literal[len(match["prefix"]) + 3 : -3]
        if "\\" in text and "r" not in match["prefix"].lower():
            try:
                text = ast.literal_eval(literal)
            except (SyntaxError, ValueError):  # an f-string, or an escape that is none
                continue
        yield text


def _prose(text: str) -> Iterator[str]:
    """Yields the paragraphs of a docstring that are sentences, each joined to one line."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if len(block) < _MIN_CHARS:
            continue
        lines = block.split("\n")
        # A section's title stands over its text; lines of several depths are lists or code.
        if _SECTION.fullmatch(lines[0].strip()):
            del lines[0]
        depths = {len(line) - len(line.lstrip()) for line in lines}
        paragraph = " ".join(" ".join(lines).split())
        if len(depths) != 1 or _NOT_PROSE.search(paragraph):
            continue
        paragraph = _MARKUP.sub("", _ROLE.sub(r"\1", paragraph))
        if _is_prose(paragraph):
            yield paragraph


def _is_prose(paragraph: str) -> bool:
    """Whether a paragraph is made of words and looks like whole sentences."""
    words = paragraph.split()
    plain = sum(_WORD.fullmatch(word) is not None for word in words)
    return (
        len(words) >= _MIN_WORDS
        and (paragraph[0].isupper() or paragraph[0] in "\"'(")
        and paragraph[-1] in ".!?)\"'"
        and plain >= 0.8 * len(words)
    )


@dataclass(frozen=True)
class PythonSplit:
    """The whole of this prose as a part of a source."""

    name: str = "python:"
    size: int = 0

    def read(self, stats: ReadStats) -> Iterator[Document]:
        """Yields one document per documentation topic and module."""
        for id, text in documents():
            data = text.encode()
            stats.bytes += len(data)
            stats.lines += text.count("\n") + 1
            stats.sha256.update(data)
            yield from split_parts(id, "", [text])
