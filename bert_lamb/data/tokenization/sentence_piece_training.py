"""Learning a SentencePiece model; the same texts give the same bytes."""

import io
import random
import re
from collections.abc import Iterable, Iterator

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization.sentence_piece import Sample, SentencePiece
from bert_lamb.data.tokenization.text import TextOptions, normalize
from bert_lamb.data.tokenization.wordpiece_training import SMALLEST_VOCABULARY

MODEL_TYPES = ("unigram", "bpe")
# The trainer leaves out what is longer than 4,192 bytes; a character takes at most four.
_SENTENCE = 1000
# Sums of the trainer's floats are grouped by thread, so their number decides on the last bits.
_THREADS = 8
# The trainer's own mark; it leaves out sentences that hold it.
_RESERVED = "\u2585"


def train_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    model_type: str = "unigram",
    options: TextOptions | None = None,
    *,
    character_coverage: float = 0.9995,
    sentences: int = 1_000_000,
) -> SentencePiece:
    """Learns a model from `texts`; the same texts give the same bytes.

    The trainer keeps its sentences in memory, so it gets at most `sentences` of them, each with the
    same chance (a reservoir with a constant seed). The tokenizer's `sample` says how many there
    were.

    Args:
        texts: texts of any length, read once.
        vocab_size: tokens wanted, special ones included; fewer come out of small texts.
        model_type: "unigram" or "bpe".
        options: what is done to a text first; BERT uncased by default.
        character_coverage: share of all characters that get a token; the rarest become [UNK].
        sentences: most pieces of text, of at most 1,000 characters each, to train on.

    Raises:
        DataError: if an argument is out of range, the texts hold nothing, or `vocab_size` is less
            than the number of characters to cover.
    """
    if model_type not in MODEL_TYPES:
        raise DataError(f"model_type = {model_type!r}: expected one of {', '.join(MODEL_TYPES)}")
    if vocab_size < SMALLEST_VOCABULARY:
        raise DataError(
            f"vocab_size = {vocab_size}: expected at least {SMALLEST_VOCABULARY} tokens"
        )
    if not 0.98 <= character_coverage <= 1:
        raise DataError(f"character_coverage = {character_coverage}: expected 0.98 to 1")
    if sentences < 1:
        raise DataError(f"sentences = {sentences}: expected at least 1")
    options = options or TextOptions()
    chosen, seen = _reservoir(_sentences(texts, options), sentences)
    if not chosen:
        raise DataError("vocabulary: the texts hold no word; check the sources")
    model = _train(chosen, vocab_size, model_type, character_coverage)
    return SentencePiece(model, options, Sample(seen, len(chosen)), "trained model")


def _sentences(texts: Iterable[str], options: TextOptions) -> Iterator[str]:
    """Cuts lines into pieces of at most _SENTENCE characters, at a space if there is one."""
    for text in texts:
        for line in text.split("\n"):
            rest = normalize(line, options).replace(_RESERVED, " ").strip(" ")
            while len(rest) > _SENTENCE:
                cut = rest.rfind(" ", 1, _SENTENCE)
                cut = _SENTENCE if cut < 0 else cut
                yield rest[:cut]
                rest = rest[cut:].lstrip(" ")
            if rest:
                yield rest


def _reservoir(items: Iterator[str], size: int) -> tuple[list[str], int]:
    """Draws `size` of `items` evenly; returns them and the number of all."""
    draw = random.Random("sentencepiece sample").random
    kept: list[str] = []
    seen = 0
    for item in items:
        seen += 1
        if len(kept) < size:
            kept.append(item)
        elif (place := int(draw() * seen)) < size:
            kept[place] = item
    return kept, seen


def _train(chosen: list[str], vocab_size: int, model_type: str, coverage: float) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(chosen),
            model_writer=model,
            model_type=model_type,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=coverage,
            normalization_rule_name="identity",  # done by `normalize`
            pad_id=0, unk_id=1, bos_id=2, eos_id=3,
            pad_piece="[PAD]", unk_piece="[UNK]", bos_piece="[CLS]", eos_piece="[SEP]",
            control_symbols=["[MASK]"],
            num_threads=_THREADS,
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        few = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if few:
            raise DataError(
                f"vocab_size = {vocab_size}: the texts hold {few[1]} characters and special tokens "
                "alone; take a larger vocabulary or a smaller character_coverage"
            ) from error
        raise DataError(
            f"vocabulary: sentencepiece cannot train on these texts ({str(error)[:150]}); "
            "give it more text"
        ) from error
    return model.getvalue()
