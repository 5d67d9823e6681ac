"""The tokenizer of a Hugging Face BERT, with its casing from the files and from nowhere else."""

import logging
from pathlib import Path
from typing import Any

from bert_lamb.data.tokenization import (
    SPECIAL_TOKENS,
    TextOptions,
    Tokenizer,
    WordPiece,
    load_tokenizer,
)
from bert_lamb.interop.errors import InteropError
from bert_lamb.interop.files import check_file, open_folder, read_json, short
from bert_lamb.interop.huggingface_config import CONFIG_FILE, read_model_config

log = logging.getLogger(__name__)

JSON_FILE, VOCAB_FILE = "tokenizer.json", "vocab.txt"
SETTINGS_FILE = "tokenizer_config.json"
_ADDED_FILE, _SPECIAL_FILE = "added_tokens.json", "special_tokens_map.json"

# Keys of tokenizer_config.json that would give a text other ids, and the values with which they do
# not.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "tokenize_chinese_chars": (True,),
    "do_basic_tokenize": (True,),
    "never_split": (None, []),
    "additional_special_tokens": (None, []),
    "extra_special_tokens": (None, {}, []),
    "wordpieces_prefix": ("##",),
}
_ROLES = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
# Others read a vocab.txt by rules of their own, such as those of Japanese.
_CLASSES = ("BertTokenizer", "BertTokenizerFast")
# Above this share of tokens with capitals a vocabulary was made of text as it is.
_CASED_SHARE = 0.01


def read_tokenizer(folder: str | Path) -> Tokenizer:
    """Reads tokenizer.json, or vocab.txt with tokenizer_config.json.

    Where both say something, they must agree. "[MASK]" and other special tokens in a text are
    letters here, as for all our tokenizers, and not the tokens.

    Args:
        folder: a local folder, with the config.json of its model.

    Raises:
        InteropError: if nothing says whether text is lower-cased, if files contradict each other,
            if a setting asks for what our tokenizer does not do, or if there are more tokens than
            `vocab_size` of config.json.
        DataError: for a tokenizer.json or vocab.txt that is damaged or not BERT's.
    """
    path = open_folder(folder)
    settings_file = path / SETTINGS_FILE
    settings = read_json(settings_file) if settings_file.exists() else {}
    _check_settings(settings_file, settings)
    if (path / JSON_FILE).exists():
        tokenizer, file = _from_json(path, settings), path / JSON_FILE
    else:
        tokenizer, file = _from_vocab(path, settings), path / VOCAB_FILE
    _check_special_tokens(path, settings)
    _check_added_tokens(path, settings, tokenizer)
    _check_capitals(file, tokenizer)
    _check_size(file, tokenizer, read_model_config(path).vocab_size)
    return tokenizer


def _from_json(path: Path, settings: dict[str, Any]) -> WordPiece:
    tokenizer = _load(path / JSON_FILE)
    options = tokenizer.options
    lowercase = _flag(path, settings, "do_lower_case")
    if lowercase is not None and lowercase != options.lowercase:
        _contradicts(path, "do_lower_case", lowercase, f"lowercase = {short(options.lowercase)}")
    if "strip_accents" in settings:
        strip = _flag(path, settings, "strip_accents")
        if TextOptions(options.lowercase, strip).strips_accents != options.strips_accents:
            found = f"strip_accents = {short(options.strip_accents)}"
            _contradicts(path, "strip_accents", strip, found)
    if (path / VOCAB_FILE).exists():
        _check_same_tokens(path, tokenizer)
    return tokenizer


def _contradicts(path: Path, key: str, value: object, found: str) -> None:
    raise InteropError(
        f"{path / SETTINGS_FILE}: {key} = {short(value)}, but {JSON_FILE} has {found}; correct the "
        "one that is not as the model was trained"
    )


def _check_same_tokens(path: Path, tokenizer: WordPiece) -> None:
    listed = _load(path / VOCAB_FILE, tokenizer.options).tokens
    if listed == tokenizer.tokens:
        return
    pairs = enumerate(zip(listed, tokenizer.tokens, strict=False))
    where = next((i for i, (a, b) in pairs if a != b), min(len(listed), tokenizer.vocab_size))
    first, second = ((*tokens, None)[where] for tokens in (listed, tokenizer.tokens))
    raise InteropError(
        f"{path / VOCAB_FILE}: token {where} is {first!r}, but {second!r} in {JSON_FILE}; remove "
        "the file that is not the model's"
    )


def _from_vocab(path: Path, settings: dict[str, Any]) -> WordPiece:
    file = path / VOCAB_FILE
    if not file.exists():
        raise InteropError(
            f"{path}: holds neither {JSON_FILE} nor {VOCAB_FILE}; add the model's tokenizer"
        )
    kind = settings.get("tokenizer_class")
    if kind is not None and kind not in _CLASSES:
        raise InteropError(
            f"{path / SETTINGS_FILE}: tokenizer_class = {short(kind)}: expected one of "
            f"{', '.join(_CLASSES)}; a {VOCAB_FILE} of another is read by other rules"
        )
    lowercase = _flag(path, settings, "do_lower_case")
    if lowercase is None:
        raise InteropError(
            f"{path / SETTINGS_FILE}: nothing says whether text is lower-cased for {VOCAB_FILE}, "
            'and it is not guessed; write {"do_lower_case": true} there for an uncased model, '
            '{"do_lower_case": false} for a cased one'
        )
    return _load(file, TextOptions(lowercase, _flag(path, settings, "strip_accents")))


def _load(file: Path, options: TextOptions | None = None) -> WordPiece:
    check_file(file)
    tokenizer = load_tokenizer(file, options)
    assert isinstance(tokenizer, WordPiece)  # the only kind of files of these names
    return tokenizer


def _flag(path: Path, settings: dict[str, Any], key: str) -> bool | None:
    value = settings.get(key)
    if value is not None and not isinstance(value, bool):
        raise InteropError(
            f"{path / SETTINGS_FILE}: {key} = {short(value)}: expected true, false or null"
        )
    return value


def _check_settings(file: Path, settings: dict[str, Any]) -> None:
    for key, values in _NEUTRAL.items():
        if key in settings and settings[key] not in values:
            raise InteropError(
                f"{file}: {key} = {short(settings[key])}: expected {short(values[0])}, or no such "
                "key; our tokenizer would give other ids"
            )


def _check_special_tokens(path: Path, settings: dict[str, Any]) -> None:
    """Raises InteropError if a file gives [CLS] or another special token another name."""
    named = {SETTINGS_FILE: settings}
    if (path / _SPECIAL_FILE).exists():
        named[_SPECIAL_FILE] = read_json(path / _SPECIAL_FILE)
    for name, content in named.items():
        for role, token in _ROLES.items():
            value = _text(content.get(role))
            if value is not None and value != token:
                raise InteropError(
                    f"{path / name}: {role} = {short(value)}: expected {short(token)}; other names "
                    "of special tokens are not read"
                )


def _text(token: Any) -> Any:
    """Returns the letters of a token, which may stand with flags beside it."""
    return token.get("content") if isinstance(token, dict) else token


def _check_added_tokens(path: Path, settings: dict[str, Any], tokenizer: WordPiece) -> None:
    """Raises InteropError for tokens that would be found in a text before it is cut into words."""
    added: list[tuple[str, object, object]] = []
    table = settings.get("added_tokens_decoder") or {}
    if not isinstance(table, dict):
        raise InteropError(
            f"{path / SETTINGS_FILE}: added_tokens_decoder = {short(table)}: expected a token for "
            "each id"
        )
    added += [(SETTINGS_FILE, _text(token), id) for id, token in table.items()]
    if (path / _ADDED_FILE).exists():
        added += [(_ADDED_FILE, token, id) for token, id in read_json(path / _ADDED_FILE).items()]
    for name, token, id in added:
        known = tokenizer.special_tokens.get(token) if isinstance(token, str) else None
        if known is None or str(known) != str(id):
            raise InteropError(
                f"{path / name}: added token {short(token)} (id {id}): expected none but "
                f"{' '.join(SPECIAL_TOKENS)} with their ids in the vocabulary; our tokenizer would "
                "give other ids"
            )


def _check_capitals(file: Path, tokenizer: WordPiece) -> None:
    """Raises InteropError for a cased vocabulary that would be used with lower-cased text."""
    ordinary = [tokenizer.tokens[id] for id in tokenizer.ordinary_ids]
    cased = [token for token in ordinary if token != token.lower()]
    if tokenizer.options.lowercase and len(cased) > _CASED_SHARE * len(ordinary):
        raise InteropError(
            f"{file}: {len(cased)} of {len(ordinary)} tokens have capital letters (such as "
            f"{cased[0]!r}), which lower-cased text never gives, but the folder says that text is "
            "lower-cased; if the model is a cased one, set do_lower_case (and lowercase in "
            f"{JSON_FILE}) to false"
        )


def _check_size(file: Path, tokenizer: Tokenizer, vocab_size: int) -> None:
    tokens = tokenizer.vocab_size
    if tokens > vocab_size:
        raise InteropError(
            f"{file}: {tokens} tokens, but vocab_size = {vocab_size} in {CONFIG_FILE}: the ids "
            f"from {vocab_size} on have no row in the word table; take the files of one model"
        )
    if tokens < vocab_size:
        log.info(
            "%s: %d tokens; rows %d to %d of the word table are never used",
            file, tokens, tokens, vocab_size - 1,
        )  # fmt: skip
