"""Lists of titles, for example of articles that an evaluation uses and training must not see."""

import contextlib
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from bert_lamb.data.corpus.packed import open_unpacked, plain_name
from bert_lamb.data.errors import DataError

_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")


def normalize_title(title: str) -> str:
    """Returns the form in which two titles of one page are equal.

    As in MediaWiki, underscores are spaces, runs of white space are one space, and the first letter
    is a capital. Percent escapes are decoded where they give UTF-8 ("100%25" but not "100% wool").
    """
    if _PERCENT.search(title):
        with contextlib.suppress(UnicodeDecodeError):
            title = unquote(title, errors="strict")
    title = " ".join(unicodedata.normalize("NFC", title).replace("_", " ").split())
    first = title[:1].upper()
    # MediaWiki keeps letters whose capital is more than one letter, such as the German sharp s.
    return (first if len(first) == 1 else title[:1]) + title[1:]


def read_titles(paths: Sequence[str]) -> frozenset[str]:
    """Returns the normalized titles in the files of `paths`.

    Args:
        paths: text files with a title a line (blank lines and lines that begin with # do not
            count) or, where the name ends in .json, SQuAD files, whose "data" holds articles with a
            "title"; plain or packed.

    Raises:
        DataError: if a file cannot be read, is not UTF-8, or holds no title; names it.
    """
    found: set[str] = set()
    for path in paths:
        try:
            with open_unpacked(path) as stream:
                text = stream.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, byte {error.start}: not UTF-8 ({error.reason}); convert the file"
            ) from error
        is_json = plain_name(path).lower().endswith(".json")
        titles = _squad_titles(path, text) if is_json else _listed_titles(text)
        normalized = {normalize_title(title) for title in titles} - {""}
        if not normalized:
            raise DataError(f"{path}: no title in it; expected one a line, or a SQuAD .json file")
        found |= normalized
    return frozenset(found)


def _listed_titles(text: str) -> list[str]:
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if not line.startswith("#")]


def _squad_titles(path: str, text: str) -> list[str]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: not JSON ({error}); expected a SQuAD file, or give the list another ending"
        ) from error
    try:
        titles = [article["title"] for article in value["data"]]
    except (KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{path}: no SQuAD file: expected 'data', a list of articles with a 'title' each"
        ) from error
    odd = [title for title in titles if not isinstance(title, str)]
    if odd:
        raise DataError(f"{path}: the title {odd[0]!r:.40} is no string; check the file")
    return titles
