"""Tokens are those of the tokenizer, and each is exactly where its characters are."""
# ruff: noqa: RUF001  (look-alike letters are what is tested)

import sys
import unicodedata

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import (
    SentencePiece,
    TextOptions,
    WordPiece,
    load_tokenizer,
    train_sentencepiece,
)
from bert_lamb.data.tokenization.text import split_words
from bert_lamb.squad.alignment import Aligner

OPTIONS = {
    "uncased": TextOptions(),
    "cased": TextOptions(lowercase=False),
    "uncased-nfc": TextOptions(nfc=True),
    "cased-nfc": TextOptions(lowercase=False, nfc=True),
    "lower-accents": TextOptions(strip_accents=False),
    "cased-stripped": TextOptions(lowercase=False, strip_accents=True),
}
ODD = [
    "café", "cafe\u0301 noir", "CAFÉ!", "ﬁne ﬂow", "İstanbul ΣΊΣΥΦΟΣ ß", "the\u0085dog",
    "a\u200bb", "\U0001f600 ok \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "line\r\none\r\n\r\ntwo", "tabs\tand  double", "no\u00a0break", "中文字abc",
    "각 \u1100\u1161\u11a8",
    "q\u0307\u0323x e\u200b\u0301y", "\u212b \u2126 \uf900 \u1fef \u037e", "a\ufffdb\ud800c",
    "x" * 101 + " y", "½ ㍿ ＦＯＸ", "हिन्दी ไทย", "", "  ", "\u0301", "\u0301a", "a \u0301b",
    "\u00ad",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f!", "\u0627\u064b\u0300\u0302", "\u1d15e\u0300",
    "ΟΔΥΣΣΕΥΣ ΑΣ.Β ΣΑΣ\u00adΑ", "[MASK] [CLS]", "##x #", "\u3000wide\u2028line",
]  # fmt: skip
SENTENCES = [
    "The quick brown fox doesn't jump over the lazy dog, as it can't.", "héllo wörld, fine café.",
    "道可道，非常道。名可名，非常名。", "모든 인간은 태어날 때부터 자유로우며", "सभी मनुष्यों को गौरव",
]  # fmt: skip


def own_normalizer() -> SentencePiece:
    """A model with rules of its own (NFKC) and tokens for single bytes."""
    import io

    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20), model_writer=out, vocab_size=420,
        byte_fallback=True, control_symbols=["[CLS]", "[SEP]", "[MASK]"], pad_id=3, minloglevel=2,
        hard_vocab_limit=False, character_coverage=0.98,
    )  # fmt: skip
    return SentencePiece(out.getvalue())


@pytest.fixture(scope="module")
def tokenizers(tokenizer) -> dict[str, WordPiece | SentencePiece]:
    made: dict[str, WordPiece | SentencePiece] = {
        name: WordPiece(tokenizer.tokens, options) for name, options in OPTIONS.items()
    }
    for kind in ("unigram", "bpe"):
        for name in ("cased", "uncased", "cased-nfc"):
            options = OPTIONS[name]
            made[f"{kind}-{name}"] = train_sentencepiece(
                SENTENCES * 20, 200, kind, options, character_coverage=1.0
            )
    made["own"] = own_normalizer()
    return made


KINDS = [*OPTIONS, *(f"{k}-{n}" for k in ("unigram", "bpe")
                     for n in ("cased", "uncased", "cased-nfc")), "own"]  # fmt: skip


def check(tokenizer: WordPiece | SentencePiece, texts: list[str]) -> None:
    expected = tokenizer.encode_batch(texts)
    for text, tokens, ids in zip(texts, Aligner(tokenizer).encode(texts), expected, strict=True):
        assert tokens.ids.tolist() == ids, text
        starts, ends = tokens.starts, tokens.ends
        if not ids:
            continue
        assert starts.min() >= 0
        assert ends.max() <= len(text)
        assert (np.diff(starts) >= 0).all()
        assert (np.diff(ends) >= 0).all()
        for id, start, end in zip(ids, starts.tolist(), ends.tolist(), strict=True):
            slice = text[start:end]
            assert slice == slice.strip(" \t\r\n"), (text, slice)
            if isinstance(tokenizer, SentencePiece):
                assert slice or tokenizer.tokens[id].startswith("\u2581"), (text, slice)
                continue
            assert slice
            if id == tokenizer.unk_id:
                continue
            letters = tokenizer.tokens[id]
            changed = "".join(split_words(slice, tokenizer.options))
            kept = letters.removeprefix("##") if letters != "##" else letters
            assert kept.replace("ς", "σ") in changed.replace("ς", "σ"), (text, slice, letters)


@pytest.mark.parametrize("kind", KINDS)
def test_p87_odd_texts_are_traced_to_their_characters(tokenizers, kind):
    check(tokenizers[kind], ODD)


characters = st.sampled_from(
    "aéEİΣς\u0301\u0323\u200b\u200d\u00a0 \r\nﬁ中\u1100\u1161\u11a8가.'\U0001f600"
)
strings = st.text(characters | st.characters(), max_size=12)


@given(st.lists(strings, min_size=1, max_size=8), st.sampled_from(KINDS))
@settings(max_examples=150, deadline=None)
def test_p87_any_text_is_traced_to_its_characters(tokenizers, texts, kind):
    check(tokenizers[kind], texts)


@pytest.mark.parametrize("name", ["uncased", "cased-nfc"])
def test_every_character_is_traced(tokenizer, name):
    """Each character behind a letter; of plain letters every 50th will do."""
    found = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Lo", "So", "Co", "Cn", "Cs") or code % 50 == 0
    ]
    assert len(found) > 20_000
    texts = [" ".join(f"a{c}b" for c in found[i : i + 500]) for i in range(0, len(found), 500)]
    wordpiece = WordPiece(tokenizer.tokens, OPTIONS[name])
    expected = wordpiece.encode_batch(texts)
    for tokens, ids in zip(Aligner(wordpiece).encode(texts), expected, strict=True):
        assert tokens.ids.tolist() == ids
        assert (tokens.starts < tokens.ends).all()


def covered(tokenizer: WordPiece | SentencePiece, text: str, answer: str) -> str:
    start = text.index(answer)
    (tokens,) = Aligner(tokenizer).encode([text])
    span = tokens.cover(start, start + len(answer))
    assert span is not None
    return text[tokens.starts[span[0]] : tokens.ends[span[1]]]


CONTEXTS = [
    ("The \U0001f600\U0001f389 party, in Paris.", ["\U0001f600\U0001f389", "Paris", "The"]),
    ("in 1889\r\n the \r\n tower.", ["1889", "tower", "1889\r\n the \r\n tower", "in", "."]),
    ("ﬁne  ﬁsh\u00a0and  cafe\u0301 noir", ["ﬁne  ﬁsh", "cafe\u0301", "ﬁsh\u00a0and"]),
    ("Zoë A\u030angstro\u0308m", ["Zoë", "A\u030angstro\u0308m"]),
    ("中文字。名可名", ["中文字", "。", "名可名"]),
    ("I \u2764\ufe0f \U0001f468\u200d\U0001f469\u200d\U0001f467", ["\u2764\ufe0f",
     "\U0001f468\u200d\U0001f469\u200d\U0001f467"]),
    ("soft\u00adhyphen \u200bzero", ["soft\u00adhyphen", "zero"]),
    ("İstanbul'da ΟΔΟΣ", ["İstanbul", "ΟΔΟΣ", "da"]),
]  # fmt: skip


@pytest.mark.parametrize("kind", list(OPTIONS))
@pytest.mark.parametrize(("text", "answers"), CONTEXTS, ids=range(len(CONTEXTS)))
def test_p87_answers_come_back_from_their_tokens_letter_by_letter(tokenizers, kind, text, answers):
    for answer in answers:
        assert covered(tokenizers[kind], text, answer) == answer


@pytest.mark.parametrize("kind", ["bpe-uncased", "bpe-cased-nfc"])
@pytest.mark.parametrize(("text", "answers"), [CONTEXTS[i] for i in (0, 2, 3, 5, 6)])
def test_p87_answers_come_back_from_sentencepieces_too(tokenizers, kind, text, answers):
    """Of words with spaces around them: unknown characters in a row are one token there."""
    for answer in answers:
        assert covered(tokenizers[kind], text, answer).strip(".,") == answer


def test_characters_of_several_byte_tokens_are_whole(tokenizers):
    text = "I \U0001f600\u0416 x"
    assert covered(tokenizers["own"], text, "\U0001f600") == "\U0001f600"
    assert covered(tokenizers["own"], text, "\u0416") == "\u0416"
    (tokens,) = Aligner(tokenizers["own"]).encode([text])
    assert ((tokens.starts == 2) & (tokens.ends == 3)).sum() == 4  # bytes of the smile


def test_characters_that_expand_are_in_both_of_their_tokens(tokenizers):
    (tokens,) = Aligner(tokenizers["own"]).encode(["a ㍿ b"])  # four characters in NFKC
    places = list(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    assert places.count((2, 3)) >= 4
    assert tokens.cover(2, 3) is not None


def test_places_equal_those_of_the_tokenizers_library(dev, shared):
    """On contexts for which its ids are ours; it ends tokens before removed accents."""
    from tokenizers import BertWordPieceTokenizer

    path = shared / "data/vocab/bert-base-uncased-vocab.txt"
    tokenizer = load_tokenizer(path)
    ours = Aligner(tokenizer)
    theirs = BertWordPieceTokenizer({token: i for i, token in enumerate(tokenizer.tokens)})
    contexts = [paragraph.context for paragraph in dev["1.1"].paragraphs[::3]]
    encoded = theirs.encode_batch(contexts, add_special_tokens=False)
    compared = 0
    for text, mine, other in zip(contexts, ours.encode(contexts), encoded, strict=True):
        if mine.ids.tolist() == other.ids:
            starts, ends = np.array(other.offsets).T
            assert (mine.starts == starts).all()
            later = np.flatnonzero(mine.ends != ends)
            extra = "".join(text[ends[i] : mine.ends[i]] for i in later)
            assert all(unicodedata.category(c) == "Mn" for c in extra)
            compared += 1
    assert compared > 0.97 * len(contexts)


def test_accents_are_of_the_token_before_only_where_they_are_removed(tokenizers):
    for kind, ends in (("uncased", [2]), ("cased", [1, 2]), ("cased-nfc", [2])):
        (tokens,) = Aligner(tokenizers[kind]).encode(["e\u0301"])
        assert tokens.ends.tolist() == ends, kind


def test_other_tokenizers_are_refused(tokenizer):
    with pytest.raises(DataError, match="tokenizer of type object: the place of its tokens"):
        Aligner(object())
