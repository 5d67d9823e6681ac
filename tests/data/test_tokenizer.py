# ruff: noqa: RUF001  (look-alike letters are what is tested)
import hashlib
import os
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from bert_lamb.data.building.worker import _REMOVED
from bert_lamb.data.corpus import ReadStats, open_sources
from bert_lamb.data.errors import DataError
from bert_lamb.data.sentences import split_sentences
from bert_lamb.data.tokenization import Tokenizer

ODD = [
    "the\u0085dog", "a\u200bb", "line\u2028two", "nul\0byte", "no\u00a0break", "feff\ufeffword",
    "smile 😀 done", "中文字 and 力加勝北区ᴵᴺᵀᵃছজটডণত", "naïve café Ångström ZOË",
    "e\u0301le\u0300ve",
    "it's 3.50$ (U.S.A.) don't~stop", "tabs\tand\r\nlines", "", "  ", "x" * 101, "y" * 100,
    "[CLS] text [MASK] [unused5]", "semi；full。stop「quote」", "soft\u00adhyphen", "!\u0301?",
    "ﬁne ﬀ ½ ²", "İstanbul ΣΊΣΥΦΟ ß", "a\ufffdb", "thin\u2009space\u3000wide", "--—–…“”",
]  # fmt: skip


@pytest.fixture(scope="module")
def google(shared):
    return Tokenizer.load(shared / "data/vocab/bert-base-uncased-vocab.txt")


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_p20_ids_of_odd_strings_are_googles(google, google_wordpiece, shared, text):
    vocab = google_wordpiece.read_vocab(shared / "data/vocab/bert-base-uncased-vocab.txt")
    assert google.encode_batch([text]) == [google_wordpiece.ids(text, vocab)]


def test_p20_capital_sigma_at_the_end_of_a_word_is_the_known_difference(google, google_wordpiece):
    """Python lower-cases it to a final sigma, the library to a plain one."""
    assert google_wordpiece.words("ΟΣ") == ["ος"]
    assert google.encode_batch(["ΟΣ"]) == google.encode_batch(["οσ"])


def test_p20_known_ids(google):
    assert google.encode_batch(["the\u0085dog"]) == google.encode_batch(["thedog"])
    assert google.encode_batch(["Hello, World!"]) == [[7592, 1010, 2088, 999]]


def test_p20_removed_characters_are_those_of_the_rules():
    removed = {c for c in map(chr, range(sys.maxunicode + 1)) if _REMOVED.match(c)}
    rule = {
        c
        for c in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(c) in ("Cc", "Cf") and c not in "\t\n\r"
    }
    # Newer Unicode versions than this Python's may know a few more.
    assert rule <= removed | {"\ufffd"}
    assert {unicodedata.category(c) for c in removed - rule} <= {"Cn", "So"}


def test_real_text_gives_googles_ids(google, google_wordpiece, shared):
    """The tables of known words change nothing: neither filled nor emptied on the way."""
    vocab = google_wordpiece.read_vocab(shared / "data/vocab/bert-base-uncased-vocab.txt")
    text = (shared / "data/peer_golden/sample_text.txt").read_text("utf-8")
    lines = text.split("\n")
    expected = [google_wordpiece.ids(line, vocab) for line in lines]
    assert google.encode_batch(lines) == expected
    assert google.encode_batch(lines) == expected


def test_cased_vocabulary_keeps_case(shared):
    cased = Tokenizer.load(shared / "data/vocab/bert-base-cased-vocab.txt", lowercase=False)
    tokens = [cased.token(id) for id in cased.encode_batch(["Zoë went to Paris"])[0]]
    assert tokens[-3:] == ["went", "to", "Paris"]
    assert tokens[0].startswith("Z")


def test_full_tables_are_emptied_without_effect(tokenizer, monkeypatch):
    monkeypatch.setattr("bert_lamb.data.tokenization._CACHED_WORDS", 5)
    small = Tokenizer(tokenizer._core)
    texts = [f"ba{i} ce, di-fo gu. word{i % 3}" for i in range(50)]
    assert [small.encode_batch([t])[0] for t in texts] == tokenizer.encode_batch(texts)


def test_specials_come_from_encode_with_masks_only(google):
    special = {google.cls_id, google.sep_id, google.mask_id, google.pad_id}
    text = "[CLS] Paris is [MASK]. [SEP] [PAD]"
    assert not special & set(google.encode_batch([text])[0])
    ids = google.encode_with_masks(text)
    assert ids.count(google.mask_id) == 1
    assert not (special - {google.mask_id}) & set(ids)
    assert google.token(ids[ids.index(google.mask_id) + 1]) == "."


def test_save_and_load_keep_everything(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.txt"):
        loaded = Tokenizer.load(path)
        assert loaded.hash == tokenizer.hash
        assert loaded.encode_batch(["Bace difo [SEP]"]) == tokenizer.encode_batch(
            ["Bace difo [SEP]"]
        )


def test_ordinary_ids_leave_out_special_and_unused(google):
    tokens = [google.token(int(id)) for id in google.ordinary_ids]
    assert len(tokens) == 30522 - 5 - 994
    assert not [t for t in tokens if re.fullmatch(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]", t)]
    assert google.ordinary_ids.dtype == np.int32


def test_decode_joins_pieces(google):
    ids = google.encode_batch(["unaffable wordpieces, here"])[0]
    assert google.decode(ids) == "unaffable wordpieces, here"


def test_missing_special_tokens_are_named(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\na\nb\n")
    with pytest.raises(DataError, match=r"vocab\.txt: the special tokens \[SEP\] \[MASK\]"):
        Tokenizer.load(tmp_path / "vocab.txt")


def test_unreadable_tokenizers_are_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(DataError, match=re.escape(str(tmp_path))):
            Tokenizer.load(path)
    (tmp_path / "vocab.txt").write_text("[PAD]\na\na\n")
    with pytest.raises(DataError, match="'a' stands on several lines"):
        Tokenizer.load(tmp_path / "vocab.txt")


def test_token_outside_of_the_vocabulary(tokenizer):
    with pytest.raises(DataError, match="token id 10000: expected 0 to"):
        tokenizer.token(10000)


def test_training_gives_the_same_bytes_each_time(text_file, tmp_path):
    """Other processes with other hash seeds and thread counts, as ties lie in hash tables."""
    code = (
        "import sys; from bert_lamb.data.corpus import *\n"
        "from bert_lamb.data.tokenization import *\n"
        "documents = open_sources([sys.argv[1]])[0].read(ReadStats())\n"
        "Tokenizer.train((d.text + ' é 中 ñandú' for d in documents), 400).save(sys.argv[2])"
    )
    digests = set()
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        command = [sys.executable, "-c", code, str(text_file), str(tmp_path)]
        subprocess.run(command, env=environment, check=True)
        digests.add(hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_training_learns_the_words(text_file, tokenizer):
    documents = list(open_sources([str(text_file)])[0].read(ReadStats()))
    assert tokenizer.vocab_size == 300
    ids = tokenizer.encode_batch([d.text for d in documents])
    assert not any(tokenizer.unk_id in row for row in ids)
    characters = sum(len(d.text) for d in documents)
    assert sum(map(len, ids)) < characters / 2


def test_training_refuses_nothing_to_learn():
    with pytest.raises(DataError, match="no word"):
        Tokenizer.train(["", " \n"], 100)
    with pytest.raises(DataError, match="vocab_size = 10"):
        Tokenizer.train(["a b c"], 10)


def test_sentences_stop_at_line_ends_and_know_abbreviations():
    text = "Mr. Smith paid $3.50. He left\nand came back. \n\n  Really?"
    assert split_sentences(text) == [
        "Mr. Smith paid $3.50.", "He left", "and came back.", "Really?"
    ]  # fmt: skip
