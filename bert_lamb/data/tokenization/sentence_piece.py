"""SentencePiece: tokens that hold their spaces, for languages with or without them.

References:
    Kudo and Richardson, "SentencePiece" (arXiv 1808.06226); Kudo, "Subword Regularization"
    (arXiv 1804.10959) for the unigram model; Sennrich et al. (arXiv 1508.07909) for BPE.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization.model_proto import (
    BPE,
    CONTROL,
    NORMAL,
    SPACE_MARK,
    UNKNOWN,
    UNUSED,
    Model,
    parse_model,
)
from bert_lamb.data.tokenization.recent import RecentWords
from bert_lamb.data.tokenization.text import TextOptions, count_removed, normalize
from bert_lamb.data.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

MODEL_FILE = "sentencepiece.model"
OPTIONS_FILE = "tokenizer_options.json"


@dataclass(frozen=True)
class Sample:
    """What a model was trained on.

    Attributes:
        sentences: pieces of text of at most 1,000 characters that the texts held.
        used: how many of them the trainer saw, drawn evenly.
    """

    sentences: int
    used: int


class SentencePiece(Tokenizer):
    """Text to SentencePiece ids and back.

    Attributes:
        options: what is done to a text first; None leaves it to the model's own normalizer.
        sample: what it was trained on, where known.
    """

    def __init__(
        self,
        model: bytes,
        options: TextOptions | None = None,
        sample: Sample | None = None,
        origin: str = "model",
    ) -> None:
        """Checks and takes a model.

        Args:
            model: bytes of a .model.
            options: what is done to a text first; None for a model with a normalizer of its own.
            sample: what it was trained on, where known.
            origin: what to call the model in messages.

        Raises:
            DataError: if the model is damaged, lacks a special token, or would read the letters of
                one as its id.
        """
        content = parse_model(model, origin)
        super().__init__(content.pieces, _special_ids(content, origin))
        self.options, self.sample = options, sample
        self._model, self._types = model, content.types
        self._core = _core(model, origin)
        # Byte-pair merges of a word do not depend on its neighbours. A unigram model's choices
        # nearly do not either, but sums of its scores round differently; and it is fast anyway.
        own = content.kind == BPE and content.identity and content.words_apart
        whole = content.pieces.index(SPACE_MARK) if SPACE_MARK in content.pieces else None
        own &= whole is not None and content.types[whole] == NORMAL
        self._known = RecentWords(self._core.encode) if own else None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens but [UNK]."""
        if self.options is not None:
            texts = [normalize(text, self.options) for text in texts]
        else:
            texts = [text.encode("utf-8", "replace").decode() for text in texts]  # lone surrogates
        if self._known is None or any(SPACE_MARK in text for text in texts):
            return self._core.encode(list(texts), num_threads=1)
        return [self._known.ids(text.split(" ")).tolist() for text in texts]

    def encode_with_places(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        """Returns ids, pieces and places of a text that is already as `options` make it.

        A place is where a piece begins and ends in `text`, as the library has it: of the pieces
        for the bytes of one character, the last has the place and the others an empty one.
        """
        found = self._core.encode(text, return_type="offset_mapping")
        return list(found["ids"]), list(found["pieces"]), list(found["offsets"])

    def count_removed(self, text: str) -> int:
        """Counts the characters that leave no trace; 0 for a model with its own normalizer."""
        return 0 if self.options is None else count_removed(text, keep_joiners=True)

    def save(self, directory: str | Path) -> None:
        """Writes sentencepiece.model and tokenizer_options.json, into a folder made if absent."""
        folder = epath.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MODEL_FILE).write_bytes(self._model)
        content: dict[str, Any] = {**self._content}
        content["sample"] = None if self.sample is None else asdict(self.sample)
        (folder / OPTIONS_FILE).write_bytes(json.dumps(content, indent=1).encode() + b"\n")

    @cached_property
    def continues(self) -> np.ndarray:
        """Whether a token continues the word before it: it does not begin with U+2581. bool [V].

        Where words are written without spaces, a word in this sense is a whole phrase.
        """
        begins = np.array([token.startswith(SPACE_MARK) for token in self.tokens])
        begins[list(self._special_ids)] = True
        return ~begins

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Ids of all tokens that a text can give but [UNK]; int32, ascending."""
        types = np.array(self._types)
        never = np.flatnonzero(np.isin(types, (CONTROL, UNKNOWN, UNUSED)))
        return np.setdiff1d(super().ordinary_ids, never).astype(np.int32)

    @cached_property
    def _content(self) -> dict[str, Any]:
        options = self.options
        return {
            "format": 1,
            "kind": "sentencepiece",
            "model_sha256": hashlib.sha256(self._model).hexdigest(),
            "text": None
            if options is None
            else {**asdict(options), "strip_accents": options.strips_accents},
        }

    def _join(self, ids: list[int]) -> str:
        return self._core.decode(ids)


def read_folder(folder: epath.Path) -> SentencePiece:
    """Reads what `SentencePiece.save` wrote.

    Raises:
        DataError: if a file is missing or damaged, or the two do not belong together.
    """
    file = folder / OPTIONS_FILE
    origin = str(file)
    try:
        model = (folder / MODEL_FILE).read_bytes()
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"tokenizer {str(folder)!r}: cannot be read ({error}); expected {MODEL_FILE} and "
            f"{OPTIONS_FILE} as they were saved"
        ) from error
    if not isinstance(content, dict) or content.get("kind") != "sentencepiece":
        raise DataError(f"{origin}: expected the options of a SentencePiece tokenizer, as saved")
    if content.get("format") != 1:
        raise DataError(
            f"{origin}: format = {content.get('format')!r}, expected 1; update this package"
        )
    found = hashlib.sha256(model).hexdigest()
    if content.get("model_sha256") != found:
        raise DataError(
            f"{origin}: made for another {MODEL_FILE} (model_sha256 = "
            f"{str(content.get('model_sha256'))[:12]}, the file's is {found[:12]}); put the "
            "original files back"
        )
    options = None if content.get("text") is None else _text_options(content["text"], origin)
    sample = content.get("sample")
    if sample is not None:
        keys = {"sentences", "used"}
        if not isinstance(sample, dict) or sample.keys() != keys or not _integers(sample.values()):
            raise DataError(f"{origin}: sample = {sample!r}, expected two numbers, as saved")
        sample = Sample(**sample)
    return SentencePiece(model, options, sample, str(folder / MODEL_FILE))


def _integers(values: Any) -> bool:
    return all(type(value) is int for value in values)


def _text_options(value: object, origin: str) -> TextOptions:
    keys = ("lowercase", "strip_accents", "nfc")
    if isinstance(value, dict) and sorted(value) == sorted(keys):
        flags = [value[key] for key in keys]
        if all(isinstance(flag, bool) for flag in flags):
            return TextOptions(*flags)
    raise DataError(f"{origin}: text = {value!r}, expected true or false for {', '.join(keys)}")


def _core(model: bytes, origin: str) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"tokenizer {origin!r}: sentencepiece cannot read it ({str(error)[:120]}); expected a "
            ".model written by its trainer"
        ) from error


def _special_ids(model: Model, origin: str) -> list[int]:
    """Ids of SPECIAL_TOKENS; ALBERT's names for the first two will do as well."""
    ids = []
    for token in SPECIAL_TOKENS:
        names = {"[PAD]": ("[PAD]", "<pad>"), "[UNK]": ("[UNK]", "<unk>")}.get(token, (token,))
        id = next((model.pieces.index(name) for name in names if name in model.pieces), None)
        if id is None:
            raise DataError(
                f"tokenizer {origin!r}: the special token {token} is missing; train it with "
                "`bert-lamb data vocab`, or with control_symbols=[CLS],[SEP],[MASK]"
            )
        expected = UNKNOWN if token == "[UNK]" else CONTROL
        if model.types[id] != expected:
            raise DataError(
                f"tokenizer {origin!r}: {model.pieces[id]} is a piece of type {model.types[id]}, "
                f"expected {expected}, or its letters in a text would become its id; train it with "
                "it among control_symbols"
            )
        ids.append(id)
    return ids
