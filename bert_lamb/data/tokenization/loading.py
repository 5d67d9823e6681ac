"""Opens the file or folder of a tokenizer, whatever its kind."""

from pathlib import Path

from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization.sentence_piece import (
    MODEL_FILE,
    OPTIONS_FILE,
    SentencePiece,
    read_folder,
)
from bert_lamb.data.tokenization.text import TextOptions
from bert_lamb.data.tokenization.tokenizer import Tokenizer
from bert_lamb.data.tokenization.wordpiece import WordPiece
from bert_lamb.data.tokenization.wordpiece_json import from_json

# All files that a tokenizer may write: the first two of WordPiece, the others of SentencePiece.
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", MODEL_FILE, OPTIONS_FILE)


def load_tokenizer(path: str | Path, options: TextOptions | None = None) -> Tokenizer:
    """Reads a tokenizer of either kind.

    Args:
        path: a folder made by `save`, a tokenizer.json, a vocab.txt (one token a line), or a
            SentencePiece .model; local or remote.
        options: what is done to a text first. A vocab.txt does not say it, and is BERT uncased
            unless told otherwise here; all others do, and must agree.

    Raises:
        DataError: if nothing is there, it cannot be read or breaks a rule (a special token is
            missing, a token empty or repeated, the model of another kind), or it was made for
            other `options`.
    """
    file = epath.Path(path)
    tokenizer = _load(file, options)
    if options is not None:
        found = tokenizer.options
        if found is None:
            raise DataError(
                f"tokenizer {str(file)!r}: has a normalizer of its own, so it takes no options for "
                "lower case, accents and NFC; leave them out"
            )
        wanted = (options.lowercase, options.strips_accents, options.nfc)
        if wanted != (found.lowercase, found.strips_accents, found.nfc):
            raise DataError(
                f"tokenizer {str(file)!r}: made with {_words(found)}, but asked for with "
                f"{_words(options)}; leave the options out, or train another one"
            )
    return tokenizer


def _load(file: epath.Path, options: TextOptions | None) -> WordPiece | SentencePiece:
    if file.is_dir():
        kinds = [name for name in (MODEL_FILE, "tokenizer.json") if (file / name).exists()]
        if len(kinds) != 1:
            raise DataError(
                f"tokenizer {str(file)!r}: the folder holds {' and '.join(kinds) or 'neither'} of "
                f"tokenizer.json and {MODEL_FILE}, expected one; name the file itself"
            )
        file /= kinds[0]
    if file.suffix == ".model":
        if file.name == MODEL_FILE and (file.parent / OPTIONS_FILE).exists():
            return read_folder(file.parent)
        return SentencePiece(_read(file), origin=str(file))
    if file.suffix == ".json":
        tokens, found = from_json(_read(file), str(file))
        return WordPiece(tokens, found, str(file))
    try:
        text = _read(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"tokenizer {str(file)!r}: not UTF-8 ({error}); expected a vocab.txt with one token "
            "a line"
        ) from error
    tokens = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    tokenizer = WordPiece(tokens, options, str(file))
    if options is None:
        _check_uncased(tokens, file)
    return tokenizer


def _check_uncased(tokens: list[str], file: epath.Path) -> None:
    """Raises DataError for a cased vocabulary that would be used with lower-cased text."""
    cased = [token for token in tokens if token != token.lower() and token[0] != "["]
    if len(cased) > 0.01 * len(tokens):
        raise DataError(
            f"tokenizer {str(file)!r}: {len(cased)} of {len(tokens)} tokens have capital letters "
            f"(such as {cased[0]!r}), which lower-cased text never gives; this is a cased "
            "vocabulary: say so (--cased), or name its folder or tokenizer.json"
        )


def _read(file: epath.Path) -> bytes:
    local = Path(str(file))
    if local.exists() and not local.is_file():
        raise DataError(f"tokenizer {str(file)!r}: a pipe or device; name a file")
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(
            f"tokenizer {str(file)!r}: cannot be read ({error}); expected a folder made by "
            "`bert-lamb data vocab`, a tokenizer.json, a vocab.txt or a SentencePiece .model"
        ) from error


def _words(options: TextOptions) -> str:
    return (
        f"lowercase={options.lowercase}, strip_accents={options.strips_accents}, nfc={options.nfc}"
    )
