"""WordPiece with Google's rules, through Hugging Face's Rust library.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), section 3; Google's BasicTokenizer and
    WordpieceTokenizer. The ids are theirs for the published vocabularies, but for a capital sigma
    at the end of a word (Python makes a final sigma of it, the library a plain one) and for
    unassigned and private characters, which the library removes too.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_lamb.data.errors import DataError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNUSED = re.compile(r"\[unused\d+\]")

# No rule of the tokenizer looks across a space or an ASCII punctuation mark, so a text may be cut
# there and its pieces encoded apart.
_PIECE = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")

# Words seen before keep their ids: on English prose that is several times as fast as encoding each
# anew. The two tables take up to 25 MB a process, and are emptied when they are full.
_CACHED_WORDS = 1 << 16
# While counting words for a vocabulary, words seen once are forgotten at this many entries.
_COUNTED_WORDS = 1 << 22
# Rarer characters become [UNK], as in Google's own vocabularies (of about 1,000 characters).
_ALPHABET = 1000


class Tokenizer:
    """Text to WordPiece ids and back.

    Ids never come from the letters of a special token: "[MASK]" in a corpus is a bracket, a word
    and a bracket. Only `encode_with_masks` reads it as the mask.

    Attributes:
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
    """

    def __init__(self, core: tokenizers.Tokenizer, origin: str = "vocabulary") -> None:
        missing = [token for token in SPECIAL_TOKENS if core.token_to_id(token) is None]
        if missing:
            raise DataError(
                f"{origin}: the special tokens {' '.join(missing)} are missing; add each on a line "
                "of its own, or train a vocabulary with `bert-lamb data vocab`"
            )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(
            core.token_to_id, SPECIAL_TOKENS
        )
        core.encode_special_tokens = True
        self._core = core
        self._words: dict[str, list[int]] = {}  # by what stands between spaces
        self._pieces: dict[str, list[int]] = {}  # the same without punctuation marks

    @classmethod
    def load(cls, path: str | Path, lowercase: bool = True) -> "Tokenizer":
        """Reads a tokenizer.json, a vocab.txt (one token a line), or a folder with the former.

        Args:
            path: local or remote.
            lowercase: for a vocab.txt, whether it is of the uncased kind (lower case, accents
                stripped); a tokenizer.json says so itself.

        Raises:
            DataError: if nothing is there, it cannot be read, or special tokens are missing.
        """
        file = epath.Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        try:
            text = file.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"tokenizer {str(file)!r}: cannot be read ({error}); expected tokenizer.json, "
                "vocab.txt or a folder holding the former"
            ) from error
        if file.suffix != ".json":
            tokens = text.removesuffix("\n").split("\n")
            return cls(_assemble([t.rstrip("\r") for t in tokens], lowercase, str(file)), str(file))
        try:
            return cls(tokenizers.Tokenizer.from_str(text), str(file))
        except DataError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise DataError(f"tokenizer {str(file)!r}: not a tokenizer.json ({error})") from error

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, lowercase: bool = True) -> "Tokenizer":
        """Learns a vocabulary from `texts`; the same texts give the same bytes.

        Words are counted here and merged by the library. The library alone numbers word-inner
        characters in the order of a hash table, which differs from run to run and decides ties
        between merges; given the characters in a fixed order, it has no freedom left.

        Args:
            texts: texts of any length, read once; memory holds the distinct words only.
            vocab_size: tokens wanted, special ones included; fewer come out if the texts hold
                fewer repeated sequences.
            lowercase: lower-case and strip accents (uncased), or not.

        Raises:
            DataError: if `vocab_size` is below 64 or the texts hold no word.
        """
        if vocab_size < 64:
            raise DataError(f"vocab_size = {vocab_size}: expected at least 64 tokens")
        words = _count_words(texts, lowercase)
        if not words:
            raise DataError("vocabulary: the texts hold no word; check the sources")
        frequency: Counter[str] = Counter()
        for word, count in words.items():
            for character in word:
                frequency[character] += count
        # Each character may take two entries (at the start of a word and inside); half of the
        # vocabulary at least is left to longer pieces.
        limit = min(_ALPHABET, (vocab_size - len(SPECIAL_TOKENS)) // 4)
        ranked = sorted(frequency, key=lambda c: (-frequency[c], c))[:limit]
        alphabet = set(ranked)
        words = Counter({w: n for w, n in words.items() if alphabet.issuperset(w)})
        inner = {f"##{character}" for word in words for character in word[1:]}
        fixed = [*SPECIAL_TOKENS, *sorted(alphabet), *sorted(inner)]
        tokens = _merge(words, fixed, vocab_size)
        return cls(_assemble(tokens, lowercase, "trained vocabulary"), "trained vocabulary")

    def save(self, directory: str | Path) -> None:
        """Writes tokenizer.json and vocab.txt into `directory`, which must exist."""
        folder = epath.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_bytes(self._serialized)
        lines = "".join(f"{self.token(i)}\n" for i in range(self.vocab_size))
        (folder / "vocab.txt").write_bytes(lines.encode())

    @cached_property
    def _serialized(self) -> bytes:
        return json.dumps(json.loads(self._core.to_str()), ensure_ascii=False, indent=1).encode()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the serialized tokenizer in canonical form, as hex digits."""
        canonical = json.dumps(json.loads(self._serialized), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self._core.get_vocab_size()

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Ids of all tokens but the special and [unusedN] ones; int32, ascending."""
        ids = (
            id
            for token, id in self._core.get_vocab().items()
            if token not in SPECIAL_TOKENS and not _UNUSED.fullmatch(token)
        )
        return np.array(sorted(ids), np.int32)

    def token(self, id: int) -> str:
        """Returns the token of `id`; raises DataError for an id outside of the vocabulary."""
        token = self._core.id_to_token(id) if 0 <= id < 2**32 else None
        if token is None:
            raise DataError(f"token id {id}: expected 0 to {self.vocab_size - 1}")
        return token

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens."""
        split = [text.split(" ") for text in texts]
        words = set().union(*split)
        if len(self._words) + len(words) > _CACHED_WORDS:
            self._words.clear()
        self._learn(words.difference(self._words))
        ids_of = self._words.__getitem__
        return [list(chain.from_iterable(map(ids_of, words))) for words in split]

    def _learn(self, words: Collection[str]) -> None:
        cut = {word: _PIECE.findall(word) for word in words}
        if len(self._pieces) + len(cut) > _CACHED_WORDS:
            self._pieces.clear()
        known = self._pieces
        new = list({piece for pieces in cut.values() for piece in pieces if piece not in known})
        encoded = self._core.encode_batch_fast(new, add_special_tokens=False)
        known.update((piece, e.ids) for piece, e in zip(new, encoded, strict=True))
        for word, pieces in cut.items():
            self._words[word] = [id for piece in pieces for id in known[piece]]

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of `text`, reading each literal "[MASK]" as the mask; no other special.

        For asking a trained model to fill in a blank.
        """
        pieces = self.encode_batch(text.split("[MASK]"))
        ids = list(pieces[0])
        for piece in pieces[1:]:
            ids += [self.mask_id, *piece]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Joins the tokens of `ids` to text, leaving out special ones."""
        return self._core.decode(list(ids), skip_special_tokens=True)


def _assemble(tokens: Sequence[str], lowercase: bool, origin: str) -> tokenizers.Tokenizer:
    """Builds BERT's pipeline around a vocabulary given in the order of its ids."""
    vocab = {token: id for id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        repeated = next(token for token, count in Counter(tokens).items() if count > 1)
        raise DataError(f"{origin}: token {repeated!r} stands on several lines; keep one of them")
    core = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.add_special_tokens([token for token in SPECIAL_TOKENS if token in vocab])
    if "[SEP]" in vocab and "[CLS]" in vocab:
        # For other programs that read tokenizer.json; encode_batch adds no special tokens.
        core.post_processor = processors.BertProcessing(
            ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
        )
    return core


def _count_words(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """Counts the words of `texts` as WordPiece will see them (normalized, punctuation apart)."""
    pieces: Counter[str] = Counter()
    for text in texts:
        pieces.update(text.replace("\n", " ").split(" "))
        if len(pieces) > _COUNTED_WORDS:
            pieces = Counter({piece: n for piece, n in pieces.items() if n > 1})
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    splitter = pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text, count in pieces.items():
        for piece in _PIECE.findall(text):
            if piece.isascii() and piece.isprintable():  # most of English, without the library
                words[piece.lower() if lowercase else piece] += count
                continue
            for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(piece)):
                words[word] += count
    return words


def _merge(words: Counter[str], fixed: Sequence[str], vocab_size: int) -> list[str]:
    """Runs the library's merges over counted words; returns the tokens in the order of ids."""
    core = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(fixed),
        show_progress=False,
    )
    core.train_from_iterator(_repeated(words), trainer)
    vocab = core.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


def _repeated(words: Counter[str]) -> Iterator[str]:
    """Spells each word out as often as it was counted: the library takes texts, not counts."""
    for word, count in sorted(words.items()):
        for start in range(0, count, 1000):
            yield f"{word} " * min(1000, count - start)
