"""A WordPiece vocabulary as Hugging Face's tokenizer.json.

Other programs read what is written here; for reading, the parts that decide on ids must be those of
BERT, since a text would get other ids otherwise.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization.text import TextOptions
from bert_lamb.data.tokenization.tokenizer import SPECIAL_TOKENS

PREFIX = "##"
_MODEL = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": PREFIX,
    "max_input_chars_per_word": 100,
}
_REMEDY = (
    "use a WordPiece tokenizer.json of BERT's kind, a vocab.txt or a SentencePiece .model, or "
    "train one with `bert-lamb data vocab`"
)


def canonical_json(tokens: Sequence[str], options: TextOptions) -> dict[str, Any]:
    """Returns the content of tokenizer.json for checked tokens."""
    vocab = {token: id for id, token in enumerate(tokens)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    special = sorted(SPECIAL_TOKENS, key=vocab.__getitem__)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[t], "content": t, **flags, "special": True} for t in special],
        "normalizer": _normalizer(options),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        # For other programs; encode_batch adds no special tokens.
        "post_processor": {
            "type": "BertProcessing",
            "sep": ["[SEP]", vocab["[SEP]"]],
            "cls": ["[CLS]", vocab["[CLS]"]],
        },
        "decoder": {"type": "WordPiece", "prefix": PREFIX, "cleanup": True},
        "model": {**_MODEL, "vocab": vocab},
    }


def to_json(tokens: Sequence[str], options: TextOptions) -> bytes:
    """Returns the bytes of tokenizer.json."""
    return json.dumps(canonical_json(tokens, options), ensure_ascii=False, indent=1).encode()


def from_json(data: bytes, origin: str) -> tuple[list[str], TextOptions]:
    """Reads tokens and options from the bytes of a tokenizer.json.

    Args:
        data: the file.
        origin: its name, for messages.

    Raises:
        DataError: if it is damaged, of another kind of model, or would need other rules for text.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"tokenizer {origin!r}: not a tokenizer.json ({error})") from error
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        raise DataError(f"tokenizer {origin!r}: not a tokenizer.json (it has no model with vocab)")
    for key, expected in _MODEL.items():
        if model.get(key) != expected:
            raise DataError(
                f"tokenizer {origin!r}: model.{key} = {model.get(key)!r}, expected {expected!r}; "
                + _REMEDY
            )
    tokens = _in_order(model["vocab"], origin)
    for added in _dictionaries(content.get("added_tokens")):
        name = added.get("content")
        if name not in SPECIAL_TOKENS or model["vocab"].get(name) != added.get("id"):
            raise DataError(
                f"tokenizer {origin!r}: added token {name!r} (id {added.get('id')!r}) is none of "
                f"{' '.join(SPECIAL_TOKENS)} with its id in the vocabulary; " + _REMEDY
            )
    splitter = content.get("pre_tokenizer")
    if splitter != {"type": "BertPreTokenizer"}:
        raise DataError(
            f"tokenizer {origin!r}: pre_tokenizer = {json.dumps(splitter)[:80]}, expected "
            "BertPreTokenizer; " + _REMEDY
        )
    return tokens, _options(content.get("normalizer"), origin)


def _in_order(vocab: object, origin: str) -> list[str]:
    """The tokens of {token: id} in the order of ids, which must be 0 to V-1."""
    if not isinstance(vocab, dict) or not all(type(id) is int for id in vocab.values()):
        raise DataError(f"tokenizer {origin!r}: model.vocab is not a table of tokens with their id")
    tokens = sorted(vocab, key=vocab.__getitem__)
    for expected, token in enumerate(tokens):
        if vocab[token] != expected:
            raise DataError(
                f"tokenizer {origin!r}: token {token!r} has id {vocab[token]}, expected {expected} "
                "(ids count from 0 without gaps, each once); number the tokens anew"
            )
    return tokens


def _dictionaries(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _normalizer(options: TextOptions) -> dict[str, Any]:
    """The normalizer as Hugging Face writes it; what follows `lowercase` is written as null."""
    last = {
        "type": "BertNormalizer",
        "clean_text": not options.nfc,
        "handle_chinese_chars": not options.nfc,
        "strip_accents": None
        if options.strips_accents == options.lowercase
        else options.strips_accents,
        "lowercase": options.lowercase,
    }
    if not options.nfc:
        return last
    clean = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": False,
        "lowercase": False,
    }
    return {"type": "Sequence", "normalizers": [clean, {"type": "NFC"}, last]}


def _options(normalizer: object, origin: str) -> TextOptions:
    """Reads the options back; accepts what `_normalizer` writes, explicit accents too."""
    steps = [normalizer]
    if isinstance(normalizer, dict) and isinstance(normalizer.get("normalizers"), list):
        steps = normalizer["normalizers"]
    last = steps[-1] if steps and isinstance(steps[-1], dict) else {}
    lowercase, strip = last.get("lowercase"), last.get("strip_accents")
    if isinstance(lowercase, bool) and (strip is None or isinstance(strip, bool)):
        options = TextOptions(lowercase, strip, nfc=len(steps) > 1)
        written = _normalizer(options)
        if normalizer == written or normalizer == _explicit(written, options):
            return replace(options, strip_accents=None if strip == lowercase else strip)
    raise DataError(
        f"tokenizer {origin!r}: normalizer = {json.dumps(normalizer)[:200]}, expected BERT's "
        "BertNormalizer with clean_text and handle_chinese_chars; " + _REMEDY
    )


def _explicit(written: dict[str, Any], options: TextOptions) -> dict[str, Any]:
    """The same normalizer with strip_accents as a truth value."""
    if "normalizers" not in written:
        return {**written, "strip_accents": options.strips_accents}
    *others, last = written["normalizers"]
    last = {**last, "strip_accents": options.strips_accents}
    return {**written, "normalizers": [*others, last]}
