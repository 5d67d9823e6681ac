"""Google's BasicTokenizer and WordpieceTokenizer, rewritten from their rules.

Slow and plain, sharing nothing with bert_lamb.data.tokenization but the vocabulary file.
"""

import unicodedata
from pathlib import Path


def read_vocab(path: Path) -> dict[str, int]:
    return {line: i for i, line in enumerate(path.read_text("utf-8").split("\n")) if line}


def ids(text: str, vocab: dict[str, int], lowercase: bool = True) -> list[int]:
    return [vocab[piece] for word in words(text, lowercase) for piece in pieces(word, vocab)]


def words(text: str, lowercase: bool = True) -> list[str]:
    cleaned = ""
    for c in text:
        if c == "\0" or c == "\ufffd" or (is_control(c) and c not in "\t\n\r"):
            continue
        if c in "\t\n\r" or unicodedata.category(c) == "Zs":
            c = " "
        cleaned += f" {c} " if is_cjk(ord(c)) else c
    found = []
    for word in cleaned.split():
        if lowercase:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        spaced = "".join(f" {c} " if is_punctuation(c) else c for c in word)
        found += spaced.split()
    return found


def pieces(word: str, vocab: dict[str, int]) -> list[str]:
    if len(word) > 100:
        return ["[UNK]"]
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = [e for e in range(len(word), start, -1) if prefix + word[start:e] in vocab]
        if not ends:
            return ["[UNK]"]
        found.append(prefix + word[start : ends[0]])
        start = ends[0]
    return found


def is_control(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cf")


def is_punctuation(c: str) -> bool:
    ascii_mark = 33 <= ord(c) <= 47 or 58 <= ord(c) <= 64 or 91 <= ord(c) <= 96
    return ascii_mark or 123 <= ord(c) <= 126 or unicodedata.category(c).startswith("P")


def is_cjk(code: int) -> bool:
    blocks = [
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
    ]  # fmt: skip
    return any(low <= code <= high for low, high in blocks)
