"""The prose of a page of wikitext.

Kept: paragraphs, the items of lists (a line each) and the shown text of links. Left out: templates
and parameters with all they hold, tables, references, formulas, galleries, listings, comments,
headings (as in BERT's own corpus, Devlin et al., section 3.1), links to files and categories, links
to other languages, and magic words. Nothing is expanded, so {{CURRENTDAY}} is gone like any other
template and the text never depends on the day.

The time is linear in the length of the page, also for markup made to be slow: a page is scanned
once for braces and extension tags, as MediaWiki's preprocessor does, and once for the rest, without
backtracking. The full parser mwparserfromhell was measured at 0.16, 0.6, 2.8 and 22 s for 2.5, 5,
10 and 20 kB of "{{a|", cannot be interrupted, and takes over ten times as long on ordinary pages.
"""

import html
import re
from collections.abc import Collection
from dataclasses import dataclass, field

# Extension tags whose content is neither wikitext nor prose.
_NO_PROSE = (
    "ce|chem|categorytree|gallery|graph|hiero|imagemap|indicator|inputbox|mapframe|maplink|math|pre"
    "|ref|references|score|section|source|syntaxhighlight|templatedata|templatestyles|timeline"
)
_TOKENS = re.compile(
    rf"<!--|<(?P<name>nowiki|{_NO_PROSE})(?=[\s/>])[^<>]*>|\{{{{+|\}}}}+", re.IGNORECASE
)
# Marks where something was removed. XML cannot hold this character, so a page has none of its own.
_GONE = "\0"

_LINE_TAGS = "blockquote|br|center|dd|div|dl|dt|h1|h2|h3|h4|h5|h6|hr|li|ol|p|poem|td|th|tr|ul"
_INLINE_TAGS = (
    "abbr|b|bdi|bdo|big|caption|cite|code|data|del|dfn|em|font|i|includeonly|ins|kbd|mark|noinclude"
    "|onlyinclude|q|rb|rp|rt|rtc|ruby|s|samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_ENDS_LINE = frozenset(_LINE_TAGS.split("|"))
_MARKUP = re.compile(
    r"\[\[|\]\]|\[(?:(?:https?|ftps?|news|irc)://|//|mailto:)[^\s\[\]<>]*|\]|\n\n|\n"
    rf"|<(?P<end>/?)(?P<tag>table|{_LINE_TAGS}|{_INLINE_TAGS})(?=[\s/>])[^<>]*>",
    re.IGNORECASE,
)
_MAX_OPEN_LINKS = 8  # captions of files hold links; deeper ones are brackets that were never closed

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")
_HEADING = re.compile(r"=.*=\s*")
_BEHAVIOUR = re.compile(r"__[A-Z]+__")
_GAPS = re.compile(rf"((?: ?{_GONE})+ ?)")
_QUOTES = re.compile(r"'{2,}")


@dataclass(frozen=True)
class Namespaces:
    """Names that begin the titles of links which show no text, in lower case.

    Attributes:
        hidden: names of the namespaces for files, media and categories in the wiki's language.
        others: names of all its other namespaces.
    """

    hidden: Collection[str] = frozenset(("file", "image", "media", "category"))
    others: Collection[str] = field(default_factory=frozenset)


def prose(page: str, namespaces: Namespaces = Namespaces()) -> str:
    """Returns the prose of a page: lines divided by line feeds, none of them blank.

    Args:
        page: wikitext, without NUL.
        namespaces: of the wiki.
    """
    text = _without_tables(_without_templates(page))
    lines = (_tidy(line) for line in _without_markup(text, namespaces).split("\n"))
    return "\n".join(line for line in lines if line)


def _without_templates(page: str) -> str:
    """Removes comments, templates, parameters and what extension tags hold."""
    out: list[str] = []
    open_braces: list[list[int]] = []  # [braces not yet closed, length of out before them]
    unclosed: set[str] = set()  # tags that do not end any more; looking again would be quadratic
    place = 0
    while token := _TOKENS.search(page, place):
        out.append(page[place : token.start()])
        place = token.end()
        if token["name"]:
            place = _skip_extension(page, token, unclosed, out)
        elif token[0] == "<!--":
            end = page.find("-->", place)
            place = len(page) if end < 0 else end + 3
        elif token[0][0] == "{":
            open_braces.append([len(token[0]), len(out)])
        else:
            _close_braces(len(token[0]), open_braces, out)
    out.append(page[place:])
    return "".join(out)


def _close_braces(count: int, open_braces: list[list[int]], out: list[str]) -> None:
    """Removes what `count` closing braces end: {{{parameter}}} or {{template}}, inside out."""
    while count >= 2 and open_braces:
        opened = open_braces[-1]
        closed = min(count, opened[0], 3)
        count -= closed
        opened[0] -= closed
        del out[opened[1] :]
        out.append(_GONE)
        if opened[0] < 2:
            open_braces.pop()


def _skip_extension(page: str, token: re.Match[str], unclosed: set[str], out: list[str]) -> int:
    """Returns where the text goes on after an extension tag and its content."""
    name = token["name"].lower()
    if token[0].endswith("/>"):
        out.append(_GONE)
        return token.end()
    end = None
    if name not in unclosed:
        end = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(page, token.end())
    if end is None:
        unclosed.add(name)
        return token.end()
    if name == "nowiki":
        content = page[token.end() : end.start()]
        out.append(re.sub(r"[^\w\s&;]", lambda match: f"&#{ord(match[0])};", content))
    else:
        out.append(_GONE)
    return end.end()


def _without_tables(text: str) -> str:
    """Removes tables; of a table that does not end, only the lines that begin like its rows."""
    out: list[str] = []
    open_tables: list[int] = []  # lengths of out before each
    for line in text.split("\n"):
        start = line.lstrip(" \t:*#")
        if start.startswith("{|"):
            open_tables.append(len(out))
        elif open_tables and start.startswith("|}"):
            del out[open_tables.pop() :]
            line = start[2:]
        if not line.startswith(("{|", "|", "!")) or (line[0] == "!" and not open_tables):
            out.append(line)
    return "\n".join(out)


def _without_markup(text: str, namespaces: Namespaces) -> str:
    """Replaces links by what they show, removes tags and HTML tables."""
    out: list[str] = []
    links: list[int] = []  # lengths of out before each link that is open
    tables: list[int] = []
    addresses = 0  # [http://... open in this line
    place = 0
    for token in _MARKUP.finditer(text):
        out.append(text[place : token.start()])
        place = token.end()
        kind = token[0]
        if token["tag"]:
            tag = token["tag"].lower()
            if tag != "table":
                out.append("\n" if tag in _ENDS_LINE else "")
            elif not token["end"]:
                tables.append(len(out))
            elif tables:
                del out[tables.pop() :]
                out.append("\n")
                links = [start for start in links if start <= len(out)]
        elif kind == "[[":
            if len(links) < _MAX_OPEN_LINKS:
                links.append(len(out))
        elif kind == "]]":
            if links:
                start = links.pop()
                shown = _shown("".join(out[start:]), namespaces)
                del out[start:]
                out.append(_GONE if shown is None else shown)
        elif kind[0] == "\n":
            out.append(kind)
            addresses = 0
            if kind == "\n\n":
                links = []
        elif kind == "]":
            if addresses:
                addresses -= 1
            else:
                out.append("]")
        else:
            addresses += 1
    out.append(text[place:])
    return "".join(out)


def _shown(link: str, namespaces: Namespaces) -> str | None:
    """Returns what [[link]] shows, or None for nothing."""
    target, bar, label = link.partition("|")
    target = target.strip()
    prefix, colon, _ = target.partition(":")
    name = prefix.strip().replace("_", " ").lower()
    if colon and name in namespaces.hidden:
        return None
    language = _LANGUAGE.fullmatch(prefix) is not None and name not in namespaces.others
    if colon and language and not bar:
        return None
    return label.strip(" ") if label.strip() else target.removeprefix(":")


def _tidy(line: str) -> str:
    """Returns a line without the marks of lists and emphasis, "" for a line that is no prose."""
    line = line.strip()
    if line.startswith(("=", "----")) and (_HEADING.fullmatch(line) or line[0] == "-"):
        return ""
    line = line.lstrip("*#:; " + _GONE)
    if "__" in line:
        line = _BEHAVIOUR.sub("", line)
    if "''" in line:
        line = _QUOTES.sub(lambda match: "'" if len(match[0]) == 4 else "", line)
    if "&" in line:
        line = html.unescape(line)
    line = " ".join(line.split())
    if _GONE in line:
        line = " ".join(_close_gaps(line).split())
    return line if any(map(str.isalnum, line)) else ""


def _close_gaps(line: str) -> str:
    """Removes the marks, and what they left: "( ; born 1900)", "(, )", a space before a comma."""
    first, *rest = _GAPS.split(line)
    pieces = [first]
    for gap, piece in zip(rest[::2], rest[1::2], strict=True):
        left, right = pieces[-1].rstrip(" ,;:"), piece.lstrip(" ,;:")
        if left.endswith(("(", "[")) or right.startswith((")", "]")):
            pieces[-1], piece = left, right
        elif " " in gap and not piece.startswith((",", ";", ".", ":")):
            pieces.append(" ")
        if left != pieces[-1] and piece.startswith(","):  # "the function, {{f}}, which"
            pieces[-1] = left
        if piece:
            pieces.append(piece)
    return "".join(pieces).strip(" ").replace("()", "").replace("[]", "")
