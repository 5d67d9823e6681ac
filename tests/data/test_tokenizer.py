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

from bert_lamb.data.corpus import ReadStats, open_sources
from bert_lamb.data.errors import DataError
from bert_lamb.data.sentences import split_sentences
from bert_lamb.data.tokenization import (
    TextOptions,
    WordPiece,
    count_removed,
    load_tokenizer,
    train_wordpiece,
    vowel_sign_share,
)

ODD = [
    "the\u0085dog", "a\u200bb", "line\u2028two", "nul\0byte", "no\u00a0break", "feff\ufeffword",
    "smile 😀 done", "中文字 and 力加勝北区ᴵᴺᵀᵃছজটডণত", "naïve café Ångström ZOË",
    "e\u0301le\u0300ve",
    "it's 3.50$ (U.S.A.) don't~stop", "tabs\tand\r\nlines", "", "  ", "x" * 101, "y" * 100,
    "[CLS] text [MASK] [unused5]", "semi；full。stop「quote」", "soft\u00adhyphen", "!\u0301?",
    "ﬁne ﬀ ½ ²", "İstanbul ΣΊΣΥΦΟ ß", "a\ufffdb", "thin\u2009space\u3000wide", "--—–…“”",
    "ΟΔΥΣΣΕΥΣ ΟΣ'Α ΟΣ’Α ΑΣ.Β ΑΣ ΣΑΣ\u00adΑ Σ", "private \ue000x unassigned \U000e0fff\u0378x",
    "\u180eMongolian\u2029paragraph", "“ΟΣ”—x’s", "é" * 100, "é" * 101, "q\u0307\u0323 ạ̇",
    "각 각 हिन्दी ไทย العربية", "=\u0338 <\u0338.", "ǅ ß ŉ İI ı", "\u2126 \u212b \uf900 \u1fef",
]  # fmt: skip


@pytest.fixture(scope="module")
def google(shared):
    return load_tokenizer(shared / "data/vocab/bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def cased(shared):
    path = shared / "data/vocab/bert-base-cased-vocab.txt"
    return load_tokenizer(path, TextOptions(lowercase=False))


@pytest.fixture(scope="module")
def vocabularies(google, cased):
    return {t.options.lowercase: {s: i for i, s in enumerate(t.tokens)} for t in (google, cased)}


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_p20_ids_of_odd_strings_are_googles(
    google, cased, google_wordpiece, vocabularies, text, lowercase
):
    tokenizer = google if lowercase else cased
    assert tokenizer.encode_batch([text, text]) == 2 * [
        google_wordpiece.ids(text, vocabularies[lowercase], lowercase)
    ]


def test_p20_every_character_gets_googles_ids(google, cased, google_wordpiece, vocabularies):
    """Each character between letters and behind a mark; of plain letters every 50th will do."""
    characters = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Lo", "Co", "Cn", "Cs")
        or (code % 50 == 0 and not 0xD800 <= code < 0xE000)
    ]
    assert len(characters) > 30_000
    for start in range(0, len(characters), 500):
        text = " ".join(f"a{c}b.{c}" for c in characters[start : start + 500])
        for tokenizer, lowercase in ((google, True), (cased, False)):
            expected = google_wordpiece.ids(text, vocabularies[lowercase], lowercase)
            assert tokenizer.encode_batch([text]) == [expected]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.text(st.one_of(st.sampled_from("aΣσ'’.\"“ \u0301\u0338\u200b-A=é"), st.characters())))
def test_p20_any_text_gets_googles_ids(google, cased, google_wordpiece, vocabularies, text):
    for tokenizer, lowercase in ((google, True), (cased, False)):
        (ids,) = tokenizer.encode_batch([text])
        text_out = text.encode("utf-8", "ignore").decode()  # a lone surrogate is no character
        assert ids == google_wordpiece.ids(text_out, vocabularies[lowercase], lowercase)
        assert all(0 <= id < tokenizer.vocab_size for id in ids)


def test_p20_capital_sigma_at_the_end_of_a_word_is_a_final_one(google, google_wordpiece):
    assert google_wordpiece.words("ΟΣ") == ["ος"]
    assert google.encode_batch(["ΟΣ"]) == google.encode_batch(["ος"])
    assert google.encode_batch(["ΟΣ"]) != google.encode_batch(["οσ"])


def test_p20_words_of_100000_letters_are_unknown(google):
    for letter in ("a", "é", "์", "Σ"):
        ids = google.encode_batch([letter * 100_000 + " dog"])[0]
        assert ids[-1:] == google.encode_batch(["dog"])[0]
        assert len(ids) <= 2


def test_p20_known_ids(google):
    assert google.encode_batch(["the\u0085dog"]) == google.encode_batch(["thedog"])
    assert google.encode_batch(["Hello, World!"]) == [[7592, 1010, 2088, 999]]


def test_p20_removed_characters_are_counted():
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        rule = unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\t\n\r"
        assert count_removed(character) == (rule or character == "\ufffd"), hex(code)
    text = "the\u0085dog\u200b and\0\ufeff é\u2028\u00a0\n\t\u200d."
    assert count_removed(text) == 5
    assert count_removed(text, keep_joiners=True) == 4
    assert count_removed("plain text,\nof two lines") == 0


def test_real_text_gives_googles_ids(google, google_wordpiece, shared):
    """The tables of known words change nothing: neither filled nor emptied on the way."""
    vocab = google_wordpiece.read_vocab(shared / "data/vocab/bert-base-uncased-vocab.txt")
    text = (shared / "data/peer_golden/sample_text.txt").read_text("utf-8")
    lines = text.split("\n")
    expected = [google_wordpiece.ids(line, vocab) for line in lines]
    assert google.encode_batch(lines) == expected
    assert google.encode_batch(lines) == expected


def test_cased_vocabulary_keeps_case(cased):
    tokens = [cased.token(id) for id in cased.encode_batch(["Zoë went to Paris"])[0]]
    assert tokens[-3:] == ["went", "to", "Paris"]
    assert tokens[0].startswith("Z")


def test_full_tables_are_emptied_without_effect(tokenizer, monkeypatch):
    monkeypatch.setattr("bert_lamb.data.tokenization.recent._CACHED_WORDS", 5)
    small = WordPiece(tokenizer.tokens)
    texts = [f"ba{i} ce, di-fo gu. word{i % 3} {'é' * (i % 60)}" for i in range(200)]
    assert [small.encode_batch([t])[0] for t in texts] == tokenizer.encode_batch(texts)
    assert len(small._known) <= 5
    assert len(small._known._older) <= 5


def test_specials_come_from_encode_with_masks_only(google):
    special = {google.cls_id, google.sep_id, google.mask_id, google.pad_id}
    text = "[CLS] Paris is [MASK]. [SEP] [PAD]"
    assert not special & set(google.encode_batch([text])[0])
    ids = google.encode_with_masks(text)
    assert ids.count(google.mask_id) == 1
    assert not (special - {google.mask_id}) & set(ids)
    assert google.token(ids[ids.index(google.mask_id) + 1]) == "."


OPTIONS = [
    TextOptions(lowercase, strip, nfc)
    for lowercase in (True, False)
    for strip in (None, True, False)
    for nfc in (True, False)
]


def test_save_and_load_keep_everything(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.txt"):
        loaded = load_tokenizer(path)
        assert loaded.hash == tokenizer.hash
        assert loaded.encode_batch(["Bace difo [SEP]"]) == tokenizer.encode_batch(
            ["Bace difo [SEP]"]
        )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_are_saved_and_part_of_the_hash(tokenizer, tmp_path, options):
    made = WordPiece(tokenizer.tokens, options)
    made.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert (loaded.options.lowercase, loaded.options.nfc) == (options.lowercase, options.nfc)
    assert loaded.options.strips_accents == options.strips_accents
    assert loaded.hash == made.hash
    assert load_tokenizer(tmp_path, options).hash == made.hash
    others = {WordPiece(tokenizer.tokens, other).hash for other in OPTIONS}
    assert len(others) == 8  # None is one of the other two
    with pytest.raises(DataError, match="made with lowercase="):
        load_tokenizer(tmp_path, TextOptions(not options.lowercase, options.strip_accents))


def test_options_do_what_they_say():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "e", "E", "é", "É", "e\u0301"]

    def read(text, *options):
        tokenizer = WordPiece(tokens, TextOptions(*options))
        return [tokenizer.token(id) for id in tokenizer.encode_batch([text])[0]]

    assert read("É", True) == ["e"]
    assert read("É", False) == ["É"]
    assert read("É", True, False) == ["é"]
    assert read("É", False, True) == ["E"]
    assert read("e\u0301", False) == ["e\u0301"]
    assert read("e\u0301", False, None, True) == ["é"]
    assert read("E\u0301", True, False, True) == ["é"]


def test_lower_casing_twice_is_lower_casing_once():
    """Frequent marks are cut off in lower-cased text, and parts of it are lower-cased again."""
    letters = [chr(code) for code in range(sys.maxunicode + 1) if chr(code) != "Σ"]
    assert all(c.lower().lower() == c.lower() and "Σ" not in c.lower() for c in letters)


def test_hash_is_that_of_the_file_that_hugging_face_writes(google, tmp_path):
    """The ids and the hash stay the same for sets of records that earlier versions have made."""
    import tokenizers

    google.save(tmp_path)
    core = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert json.loads(core.to_str()) == json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    assert core.normalizer.normalize_str("É") == "e"
    text = "It's unaffable, naïve; 中文 cost $3.50!"
    assert core.encode(text, add_special_tokens=False).ids == google.encode_batch([text])[0]
    canonical = json.dumps(json.loads(core.to_str()), sort_keys=True)
    assert google.hash == hashlib.sha256(canonical.encode()).hexdigest()


def test_hash_does_not_depend_on_the_file(google, tmp_path):
    google.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    content["post_processor"] = content["decoder"] = None
    content["normalizer"]["strip_accents"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).hash == google.hash


def test_continues_marks_word_inner_tokens(google):
    assert google.continues.shape == (30522,)
    assert google.continues.dtype == bool
    ids = google.encode_batch(["unaffable tokenizers!"])[0]
    assert [google.token(i) for i in ids if not google.continues[i]] == ["una", "token", "!"]
    assert not google.continues[list(google.special_tokens.values())].any()
    assert google.special_tokens == {
        "[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103
    }  # fmt: skip


def test_ordinary_ids_leave_out_special_and_unused(google):
    tokens = [google.token(int(id)) for id in google.ordinary_ids]
    assert len(tokens) == 30522 - 5 - 994
    assert not [t for t in tokens if re.fullmatch(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]", t)]
    assert google.ordinary_ids.dtype == np.int32


def test_decode_joins_pieces(google):
    ids = google.encode_batch(["unaffable wordpieces, here; do not"])[0]
    assert google.decode([google.cls_id, *ids, google.sep_id]) == (
        "unaffable wordpieces, here; do not"
    )
    for bad in (-1, 30522):
        with pytest.raises(DataError, match=f"token id {bad}: expected 0 to 30521"):
            google.decode([bad])


SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SPECIAL + "a\n\nb\n", r"token 6 is empty \(line 7\)"),
        (SPECIAL + "a\nb\na\n", r"'a' stands on several lines \(6 and 8\)"),
        (SPECIAL + "a\nb \n", "token 6 is 'b ', with white space"),
        ("\ufeff" + SPECIAL + "a\n", r"special tokens \[PAD\] are missing"),
        (SPECIAL.lower() + "a\n", r"special tokens \[PAD\] \[UNK\]"),
        ("", "token 0 is empty"),
    ],
)
def test_faulty_vocabularies_are_refused(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path / "vocab.txt")


def test_line_ends_of_windows_are_read(tmp_path):
    (tmp_path / "vocab.txt").write_bytes((SPECIAL + "a\nb\n").replace("\n", "\r\n").encode())
    assert load_tokenizer(tmp_path / "vocab.txt").encode_batch(["B a"]) == [[6, 5]]


def _set(*path_and_value):
    *path, key, value = path_and_value

    def change(content):
        for step in path:
            content = content[step]
        content[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("model", "type", "BPE"), "model.type = 'BPE', expected 'WordPiece'; use a WordPiece"),
        (_set("model", "type", None), "model.type = None"),
        (_set("model", "unk_token", "<unk>"), "model.unk_token = '<unk>'"),
        (_set("model", "continuing_subword_prefix", ""), "continuing_subword_prefix = ''"),
        (_set("model", "max_input_chars_per_word", 200), "max_input_chars_per_word = 200"),
        (_set("model", "vocab", "##a", 4), "has id 4, expected 5"),
        (_set("model", "vocab", "##a", 10**6), "has id .* without gaps"),
        (_set("model", "vocab", "##a", "1"), "not a table of tokens"),
        (_set("model", "vocab", []), "not a table of tokens"),
        (_set("model", {}), "no model with vocab"),
        (_set("normalizer", None), "normalizer = null, expected BERT's"),
        (_set("normalizer", "type", "Lowercase"), "normalizer = .*Lowercase"),
        (_set("normalizer", "handle_chinese_chars", False), "normalizer = .*handle_chinese"),
        (_set("normalizer", {"type": "Sequence", "normalizers": []}), "normalizer = "),
        (_set("pre_tokenizer", {"type": "ByteLevel"}), "pre_tokenizer = .*ByteLevel"),
        (_set("added_tokens", 0, "id", 7), r"added token '\[PAD\]' \(id 7\)"),
        (_set("added_tokens", 0, "content", "<new>"), "added token '<new>'"),
    ],
)
def test_other_kinds_of_tokenizer_json_are_refused(tokenizer, tmp_path, change, message):
    tokenizer.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message) as raised:
        load_tokenizer(tmp_path)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_files_raise_data_errors_only(tokenizer, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged")
    tokenizer.save(folder)
    file = folder / data.draw(st.sampled_from(["tokenizer.json", "vocab.txt"]))
    good = file.read_bytes()
    cut = data.draw(st.integers(0, len(good)))
    middle = data.draw(st.binary(max_size=20))
    resume = cut + data.draw(st.one_of(st.just(len(middle)), st.integers(0, len(good))))
    file.write_bytes(good[:cut] + middle + good[resume:])
    try:
        loaded = load_tokenizer(file)
    except DataError:
        return
    loaded.encode_batch(["Bace difo [SEP] é"])
    loaded.save(folder)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_random_bytes_raise_data_errors_only(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("random")
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).write_bytes(content)
        with pytest.raises(DataError):
            load_tokenizer(folder / name)


def test_missing_special_tokens_are_named(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\na\nb\n")
    with pytest.raises(DataError, match=r"vocab\.txt: the special tokens \[SEP\] \[MASK\]"):
        load_tokenizer(tmp_path / "vocab.txt")


def test_unreadable_tokenizers_are_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(DataError, match=re.escape(str(tmp_path))):
            load_tokenizer(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds neither of tokenizer\.json"):
        load_tokenizer(tmp_path / "empty")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        load_tokenizer(tmp_path / "deep.json")


def test_token_outside_of_the_vocabulary(tokenizer):
    with pytest.raises(DataError, match="token id 10000: expected 0 to"):
        tokenizer.token(10000)


def test_training_gives_the_same_bytes_each_time(text_file, tmp_path):
    """Other processes with other hash seeds and thread counts, as ties lie in hash tables."""
    code = (
        "import sys; from bert_lamb.data.corpus import *\n"
        "from bert_lamb.data.tokenization import *\n"
        "documents = open_sources([sys.argv[1]])[0].read(ReadStats())\n"
        "train_wordpiece((d.text + ' é 中 ñandú' for d in documents), 400).save(sys.argv[2])"
    )
    digests = set()
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        command = [sys.executable, "-c", code, str(text_file), str(tmp_path)]
        subprocess.run(command, env=environment, check=True)
        digests.add(hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_training_does_not_depend_on_the_order_of_texts():
    texts = [f"{'ab' * (i % 5)} cd{i % 7} é{i % 3}, x" for i in range(200)]
    assert train_wordpiece(texts, 100).hash == train_wordpiece(texts[::-1], 100).hash


def test_training_in_little_memory_is_the_same(monkeypatch):
    texts = [f"{'ab' * (i % 5)} cd{i % 7} é{i % 3}, x" for i in range(200)]
    expected = train_wordpiece(texts, 100).hash
    module = "bert_lamb.data.tokenization.wordpiece_training"
    monkeypatch.setattr(f"{module}._COUNTED_TEXT", 50)
    assert train_wordpiece(texts, 100).hash == expected
    monkeypatch.setattr(f"{module}._COUNTED_WORDS", 5)
    assert train_wordpiece([*texts, "rare " * 3], 100).vocab_size > 5


def test_training_keeps_the_options():
    texts = ["Élan élan ÉLAN\u0085x Élan"] * 5
    cased = train_wordpiece(texts, 64, TextOptions(lowercase=False, nfc=True))
    assert {"É", "é"} <= set(cased.tokens)
    assert "E" not in cased.tokens
    plain = train_wordpiece(texts, 64)
    assert "é" not in plain.tokens
    assert plain.unk_id not in plain.encode_batch(texts)[0]


def test_training_learns_the_words(text_file, tokenizer):
    documents = list(open_sources([str(text_file)])[0].read(ReadStats()))
    assert tokenizer.vocab_size == 300
    ids = tokenizer.encode_batch([d.text for d in documents])
    assert not any(tokenizer.unk_id in row for row in ids)
    characters = sum(len(d.text) for d in documents)
    assert sum(map(len, ids)) < characters / 2


def test_training_refuses_nothing_to_learn():
    with pytest.raises(DataError, match="no word"):
        train_wordpiece(["", " \n"], 100)
    with pytest.raises(DataError, match="vocab_size = 10"):
        train_wordpiece(["a b c"], 10)


def test_sentences_stop_at_line_ends_and_know_abbreviations():
    text = "Mr. Smith paid $3.50. He left\nand came back. \n\n  Really?"
    assert split_sentences(text) == [
        "Mr. Smith paid $3.50.", "He left", "and came back.", "Really?"
    ]  # fmt: skip


def test_a_cased_vocabulary_is_not_taken_for_an_uncased_one(shared):
    file = shared / "data/vocab/bert-base-cased-vocab.txt"
    with pytest.raises(DataError, match=r"of 28996 tokens have capital letters .*--cased"):
        load_tokenizer(file)
    assert load_tokenizer(file, TextOptions(lowercase=False)).vocab_size == 28996


@pytest.mark.parametrize(("text", "lost"), [("नदी है", True), ("ไทย", True), ("hôtel", False)])
def test_scripts_whose_vowel_signs_are_stripped_are_known(text, lost):
    assert (vowel_sign_share(text.split()) > 0.01) == lost
