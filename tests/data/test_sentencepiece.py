# ruff: noqa: RUF001  (look-alike letters are what is tested)
import hashlib
import json
import os
import re
import subprocess
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
    load_tokenizer,
    train_sentencepiece,
)

KINDS = ("unigram", "bpe")
KEEP = TextOptions(lowercase=False)
# Public-domain or made-up sentences, repeated with changes to make a corpus.
LANGUAGES = {
    "english": "The quick brown fox doesn't jump over the lazy dog, as it can't. (Why? It rains!)",
    "chinese": "道可道，非常道。名可名，非常名。無名天地之始；有名萬物之母。故常無欲，以觀其妙。",
    "japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。カタカナ。",
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม",
    "arabic": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق، وقد وهبوا عقلاً وضميراً.",
    "persian": "تمام افراد بشر آزاد به دنیا می\u200cآیند و از لحاظ حیثیت و حقوق با هم برابرند.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}


def corpus(text: str) -> list[str]:
    words = text.split(" ")
    return [text] * 20 + [" ".join(words[i % len(words) :]) for i in range(100)]


ALL = [line for text in LANGUAGES.values() for line in corpus(text)]


@pytest.fixture(scope="module", params=KINDS)
def trained(request) -> SentencePiece:
    return train_sentencepiece(ALL, 600, request.param, KEEP, character_coverage=1.0)


@pytest.fixture(scope="module")
def unigram() -> SentencePiece:
    return train_sentencepiece(ALL, 600, "unigram", KEEP, character_coverage=1.0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages_come_back_as_they_were(trained, language):
    text = LANGUAGES[language]
    (ids,) = trained.encode_batch([text])
    assert trained.unk_id not in ids
    assert len(ids) <= len(text) + 1
    assert trained.decode([trained.cls_id, *ids, trained.sep_id, trained.pad_id]) == text
    assert trained.decode(trained.encode_batch([f"  {text}\t\n {text} "])[0]) == f"{text} {text}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["hindi", "thai", "korean", "english"])
def test_uncased_text_comes_back_in_lower_case(kind, language):
    text = LANGUAGES[language]
    tokenizer = train_sentencepiece(corpus(text), 120, kind, character_coverage=1.0)
    decomposed = unicodedata.normalize("NFD", text.lower())
    kept = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    assert tokenizer.decode(tokenizer.encode_batch([text])[0]) == unicodedata.normalize("NFC", kept)


def test_special_tokens_never_come_from_text(trained):
    text = "[PAD] [UNK] [CLS] [SEP] [MASK] x[MASK]y <s> </s> <pad> <unk>"
    (ids,) = trained.encode_batch([text])
    special = set(trained.special_tokens.values())
    assert not (special - {trained.unk_id}) & set(ids)
    assert trained.special_tokens == {
        "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4
    }  # fmt: skip
    ids = trained.encode_with_masks("The [MASK] jumps. [CLS]")
    assert ids.count(trained.mask_id) == 1
    assert trained.cls_id not in ids


def test_special_tokens_in_the_training_text_do_no_harm():
    texts = [f"ab cd{i % 3} x[CLS]y [MASK] [PAD] z[UNK]z" for i in range(200)]
    for kind in KINDS:
        tokenizer = train_sentencepiece(texts, 64, kind)
        ids = tokenizer.encode_batch(texts)[0]
        assert not {tokenizer.cls_id, tokenizer.mask_id, tokenizer.pad_id} & set(ids)


def test_continues_marks_tokens_within_words(trained):
    ids = trained.encode_batch(["The dog jumps."])[0]
    starts = [trained.token(id) for id in ids if not trained.continues[id]]
    assert len(starts) == 3
    assert all(token.startswith("\u2581") for token in starts)
    assert trained.continues.shape == (trained.vocab_size,)
    assert trained.continues.dtype == bool
    assert not trained.continues[list(trained.special_tokens.values())].any()


def test_ordinary_ids_are_all_but_the_special_ones(trained):
    assert trained.ordinary_ids.tolist() == list(range(5, trained.vocab_size))
    assert trained.ordinary_ids.dtype == np.int32


def test_ids_are_those_of_the_library(trained):
    """Also where words are looked up that were seen before."""
    import sentencepiece

    core = sentencepiece.SentencePieceProcessor(model_proto=trained._model)
    texts = [*ALL, "unseen words ẞ ☃☃ ☃", "", "   ", " a  b ", "☃", "x" * 5000] * 2
    assert trained.encode_batch(texts) == core.encode(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_english_prose_gets_the_ids_of_the_library(prose, kind):
    import sentencepiece

    lines = [line.lower() for line in prose.read_text("utf-8").split("\n")]
    tokenizer = train_sentencepiece(lines, 800, kind)
    core = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._model)
    ids = tokenizer.encode_batch(lines)
    assert ids == core.encode(lines)
    assert sum(map(len, ids)) < sum(map(len, lines)) / 2


def test_full_tables_are_emptied_without_effect(monkeypatch):
    tokenizer = train_sentencepiece(ALL, 600, "bpe", KEEP, character_coverage=1.0)
    expected = tokenizer.encode_batch(ALL)
    monkeypatch.setattr("bert_lamb.data.tokenization.recent._CACHED_WORDS", 5)
    small = SentencePiece(tokenizer._model, KEEP)
    assert [small.encode_batch([text])[0] for text in ALL] == expected
    assert small._known is not None
    assert len(small._known) <= 5


def test_p20_control_characters_are_removed_and_counted(trained):
    plain = trained.encode_batch(["The dog jumps"])
    text = "The\u2028\u00a0do\u0085g\u200b ju\0mps\ufeff\u3000\u2581"
    assert trained.encode_batch([text]) == plain
    assert trained.count_removed(text) == 4
    assert trained.count_removed("می\u200cآیند") == 0


def test_save_and_load_keep_everything(trained, tmp_path):
    trained.save(tmp_path)
    for path in (tmp_path, tmp_path / "sentencepiece.model"):
        loaded = load_tokenizer(path)
        assert isinstance(loaded, SentencePiece)
        assert loaded.hash == trained.hash
        assert loaded.options == TextOptions(False, False, False)
        assert loaded.sample == trained.sample
        assert loaded.encode_batch(ALL) == trained.encode_batch(ALL)
    again = tmp_path / "again"
    loaded.save(again)
    for name in ("sentencepiece.model", "tokenizer_options.json"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()
    with pytest.raises(DataError, match=r"made with lowercase=False.* asked for with lowercase=Tr"):
        load_tokenizer(tmp_path, TextOptions())


def test_options_are_saved_and_part_of_the_hash(unigram, tmp_path):
    hashes = set()
    for lowercase in (True, False):
        for strip in (True, False):
            for nfc in (True, False):
                options = TextOptions(lowercase, strip, nfc)
                made = SentencePiece(unigram._model, options)
                made.save(tmp_path)
                assert load_tokenizer(tmp_path).options == options
                assert load_tokenizer(tmp_path).hash == made.hash
                hashes.add(made.hash)
    assert len(hashes) == 8
    assert SentencePiece(unigram._model).hash not in hashes


def test_models_of_others_keep_their_normalizer(tmp_path):
    """A model that was trained elsewhere, with ALBERT's names for padding and unknown."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ALL), model_prefix=str(tmp_path / "spiece"), vocab_size=600,
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        normalization_rule_name="nmt_nfkc_cf", hard_vocab_limit=False, minloglevel=2, num_threads=1,
    )  # fmt: skip
    tokenizer = load_tokenizer(tmp_path / "spiece.model")
    assert tokenizer.special_tokens == {
        "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4
    }  # fmt: skip
    assert tokenizer.encode_batch(["ＴＨＥ Dog"]) == tokenizer.encode_batch(["the dog"])
    assert tokenizer.encode_batch(["\ud800 \0 a\u2581b"])
    tokenizer.save(tmp_path / "saved")
    loaded = load_tokenizer(tmp_path / "saved")
    assert loaded.hash == tokenizer.hash
    assert loaded.options is None
    assert loaded.count_removed("a\0") == 0
    with pytest.raises(DataError, match="has a normalizer of its own"):
        load_tokenizer(tmp_path / "spiece.model", KEEP)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"the special token \[PAD\] is missing"),
        ({"pad_id": 3}, r"the special token \[CLS\] is missing"),
        (
            {"pad_id": 3, "user_defined_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
            r"\[CLS\] is a piece of type 4, expected 3, or its letters",
        ),
    ],
)
def test_models_without_special_tokens_are_refused(tmp_path, arguments, message):
    import sentencepiece

    prefix = str(tmp_path / "other")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ALL),
        model_prefix=prefix,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        **arguments,
    )
    with pytest.raises(DataError, match=message) as raised:
        load_tokenizer(f"{prefix}.model")
    assert f"{prefix}.model" in str(raised.value)


def test_training_gives_the_same_bytes_each_time(text_file, tmp_path):
    """In other processes with other hash seeds and numbers of threads."""
    code = (
        "import sys; from bert_lamb.data.tokenization import *\n"
        "lines = open(sys.argv[1]).read().split('\\n')\n"
        "for kind in ('unigram', 'bpe'):\n"
        "    train_sentencepiece(lines, 300, kind, sentences=500).save(f'{sys.argv[2]}/{kind}')"
    )
    digests = set()
    for threads in ("1", "2", "5"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        command = [sys.executable, "-c", code, str(text_file), str(tmp_path)]
        subprocess.run(command, env=environment, check=True)
        files = sorted(file for file in tmp_path.rglob("*") if file.is_file())
        assert len(files) == 4
        digests.add(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())
    assert len(digests) == 1


def test_training_says_how_many_sentences_it_used():
    texts = [f"ab{i % 7} cd{i % 5} ef\n\n{i} gh" for i in range(300)]
    few = train_sentencepiece(texts, 80, sentences=100)
    assert (few.sample.sentences, few.sample.used) == (600, 100)
    all_of_them = train_sentencepiece(texts, 80)
    assert (all_of_them.sample.sentences, all_of_them.sample.used) == (600, 600)


def test_samples_are_drawn_evenly_and_are_the_same_each_time():
    from bert_lamb.data.tokenization.sentence_piece_training import _reservoir

    kept, seen = _reservoir((str(i) for i in range(20_000)), 2000)
    assert seen == 20_000
    assert len(set(kept)) == 2000
    assert _reservoir((str(i) for i in range(20_000)), 2000) == (kept, seen)
    # 500 of each quarter are expected; 4 standard deviations are 78.
    quarters = np.bincount([int(number) // 5000 for number in kept])
    assert (abs(quarters - 500) < 78).all()


def test_long_lines_are_cut_and_no_letter_is_lost():
    from bert_lamb.data.tokenization.sentence_piece_training import _sentences

    words = " ".join(f"word{i}" for i in range(2000))
    cut = list(_sentences([words, "字" * 2500 + "\u2585end"], KEEP))
    assert " ".join(cut[:-3]) == words
    assert "".join(cut[-3:]) == "字" * 2500 + " end"
    assert max(map(len, cut)) <= 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 100), "the texts hold no word"),
        ((["", " \n\0"], 100), "the texts hold no word"),
        ((ALL, 10), "vocab_size = 10: expected at least 64"),
        ((ALL, 100, "unigram", KEEP), "vocab_size = 100: the texts hold .* characters"),
        ((ALL, 100, "word"), "model_type = 'word': expected one of unigram, bpe"),
    ],
)
def test_training_refuses_what_it_cannot_do(arguments, message):
    with pytest.raises(DataError, match=message):
        train_sentencepiece(*arguments)
    for key, value in (("character_coverage", 0.5), ("sentences", 0)):
        with pytest.raises(DataError, match=f"{key} = {value}"):
            train_sentencepiece(["a"], 64, **{key: value})


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_texts_give_fewer_tokens(kind):
    tokenizer = train_sentencepiece(["ab ab ab abc"], 5000, kind)
    assert tokenizer.vocab_size < 64
    assert tokenizer.decode(tokenizer.encode_batch(["ab"])[0]) == "ab"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.one_of(st.sampled_from("ab \u2581\0\u200d[]é"), st.characters()), max_size=60))
def test_any_text_gets_ids_in_range(trained, text):
    expected = 0 if trained.options is None else trained.count_removed(text)
    assert 0 <= expected <= len(text)
    for tokenizer in (trained, SentencePiece(trained._model)):
        ids, again = tokenizer.encode_batch([text, text])
        assert ids == again
        assert all(0 <= id < tokenizer.vocab_size for id in ids)
        tokenizer.decode(ids)


def test_texts_of_100000_letters_are_encoded(trained):
    for letter in ("a", "字", "☃"):
        assert trained.encode_batch([letter * 100_000])[0]


def test_damaged_folders_are_refused(unigram, tmp_path):
    unigram.save(tmp_path)
    options = tmp_path / "tokenizer_options.json"
    good = json.loads(options.read_text("utf-8"))
    for key, value, message in (
        ("kind", "other", "expected the options of a SentencePiece"),
        ("format", 2, "format = 2, expected 1"),
        ("model_sha256", "0" * 64, "made for another sentencepiece.model"),
        ("text", {"lowercase": True}, "expected true or false for lowercase"),
        ("text", {**good["text"], "nfc": 1}, "expected true or false for lowercase"),
        ("sample", [1], "expected two numbers"),
    ):
        options.write_text(json.dumps({**good, key: value}))
        with pytest.raises(DataError, match=message) as raised:
            load_tokenizer(tmp_path)
        assert str(options) in str(raised.value)
    options.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        load_tokenizer(tmp_path)
    options.write_text(json.dumps(good))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"holds sentencepiece\.model and tokenizer\.json"):
        load_tokenizer(tmp_path)
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "absent.model"))):
        load_tokenizer(tmp_path / "absent.model")


DAMAGE = """
import random, sys, pathlib
from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import load_tokenizer
good = pathlib.Path(sys.argv[1]).read_bytes()
file = pathlib.Path(sys.argv[2])
rng = random.Random(0)
refused = 0
for i in range(600):
    bad = bytearray(good)
    if i % 3 == 0:
        bad = bad[:rng.randrange(len(bad))]
    elif i % 3 == 1:
        for _ in range(rng.randint(1, 20)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
    else:
        bad = bytearray(rng.randbytes(rng.randrange(300)))
    file.write_bytes(bad)
    try:
        tokenizer = load_tokenizer(file)
    except DataError as error:
        assert str(file) in str(error) and "\\n" not in str(error)
        refused += 1
        continue
    ids = tokenizer.encode_batch(["The quick dog [MASK]", "道可道"])
    assert all(0 <= id < tokenizer.vocab_size for row in ids for id in row)
print(refused)
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["ours", "nmt_nfkc"])
def test_damaged_models_raise_data_errors_only(tmp_path, kind, rule):
    """In a process of its own, which a crash of the C++ code would end."""
    import sentencepiece

    file = tmp_path / "good.model"
    if rule == "ours":
        file.write_bytes(train_sentencepiece(ALL, 600, kind, KEEP)._model)
    else:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(ALL), model_prefix=str(tmp_path / "good"), vocab_size=600,
            pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, model_type=kind, minloglevel=2,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"], normalization_rule_name=rule,
            hard_vocab_limit=False,
        )  # fmt: skip
    command = [sys.executable, "-c", DAMAGE, str(file), str(tmp_path / "bad.model")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 300
