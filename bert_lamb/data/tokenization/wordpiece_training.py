"""Learning a WordPiece vocabulary; the same texts give the same bytes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization.text import TextOptions, split_words
from bert_lamb.data.tokenization.tokenizer import SPECIAL_TOKENS
from bert_lamb.data.tokenization.wordpiece import WORD_LIMIT, WordPiece

SMALLEST_VOCABULARY = 64
# While counting words, the rarest are forgotten at this many entries (about 500 MB).
_COUNTED_WORDS = 1 << 22
# What stands between spaces is counted as it is, and cut into words after so many characters.
_COUNTED_TEXT = 1 << 26
# Rarer characters become [UNK], as in Google's own vocabularies (of about 1,000 characters).
_ALPHABET = 1000


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, options: TextOptions | None = None
) -> WordPiece:
    """Learns a vocabulary from `texts`; the same texts give the same bytes.

    Words are counted here and merged by the library. The library alone numbers word-inner
    characters in the order of a hash table, which differs from run to run and decides ties
    between merges; given the characters in a fixed order, it has no freedom left.

    Args:
        texts: texts of any length, read once; memory holds the distinct words only.
        vocab_size: tokens wanted, special ones included; fewer come out if the texts hold
            fewer repeated sequences.
        options: what is done to a text first; BERT uncased by default.

    Raises:
        DataError: if `vocab_size` is below 64 or the texts hold no word.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise DataError(
            f"vocab_size = {vocab_size}: expected at least {SMALLEST_VOCABULARY} tokens"
        )
    options = options or TextOptions()
    words = _count_words(texts, options)
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
    return WordPiece(_merge(words, fixed, vocab_size), options, "trained vocabulary")


def _count_words(texts: Iterable[str], options: TextOptions) -> Counter[str]:
    """Counts the words of `texts` as WordPiece will see them; those that are [UNK] are left out."""
    strings: Counter[str] = Counter()
    words: Counter[str] = Counter()
    characters = 0
    for text in texts:
        strings.update(text.replace("\n", " ").split(" "))
        characters += len(text)
        if characters > _COUNTED_TEXT:
            _count_strings(strings, words, options)
            strings.clear()
            characters = 0
    _count_strings(strings, words, options)
    return words


def _count_strings(strings: Counter[str], words: Counter[str], options: TextOptions) -> None:
    for string, count in strings.items():
        for word in split_words(string, options):
            if len(word) <= WORD_LIMIT:
                words[word] += count
    rarest = 1
    while len(words) > _COUNTED_WORDS:
        for word in [word for word, count in words.items() if count <= rarest]:
            del words[word]
        rarest *= 2


def _merge(words: Counter[str], fixed: Sequence[str], vocab_size: int) -> list[str]:
    """Runs the library's merges over counted words; returns the tokens in the order of ids."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

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
