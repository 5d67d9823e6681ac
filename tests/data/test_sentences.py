# ruff: noqa: RUF001 (curly quotes are meant)
import json
import lzma

import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_lamb.data import sentences
from bert_lamb.data.errors import DataError
from bert_lamb.data.sentences import LANGUAGES, check_language, split_sentences

# What the rules look at, next to characters of every kind.
PIECES = (
    *"abXYZ1 .!?\"'“”‘’„«»`()[]<{、。…\n\r\t-é\u00a0\u0085\u2028\u3000😀।",
    *("Mr.", "U.S.", "e.g. ", "[1]", "(1) ", " A. ", '." ', "?” ", " «", "...", "X\u00a0."),
)
TEXTS = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"])).map("".join)
# Each splits otherwise in some languages than in English: abbreviations, months, question marks.
PROBES = ("x BA. Xyz", "x Adv. Xyz", "x AN. Xyz", "x av. Xyz", "x Mr. Xyz", "x Fl. Xyz")


def bare(text):
    return "".join(text.split())


def library(line, language="en"):
    return [s.strip() for s in sentencex.segment(language, line) if s.strip()]


def corpus_lines(shared, name, size):
    total = 0
    with lzma.open(shared / "data/corpus" / name, "rt", encoding="utf-8") as stream:
        for record in stream:
            for line in json.loads(record)["text"].split("\n"):
                yield line
                total += len(line)
            if total >= size:
                return


@settings(max_examples=2000, deadline=None)
@given(TEXTS, st.sampled_from(LANGUAGES))
def test_no_character_but_blanks_is_lost(text, language):
    found = split_sentences(text, language)
    assert bare("".join(found)) == bare(text)
    assert all(s and s == s.strip() and "\n" not in s for s in found)


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_lines_are_split_one_by_one(text):
    assert split_sentences(text) == [s for line in text.split("\n") for s in split_sentences(line)]


@settings(max_examples=1000, deadline=None)
@given(TEXTS, st.sampled_from(LANGUAGES))
def test_without_quotes_the_sentences_are_the_librarys(text, language):
    line = text.translate(dict.fromkeys(map(ord, "\n\"'“”‘’„«»`"))).replace("\u00a0.", ".")
    line = sentences._WIDE_BLANK_STOP.sub("", line)
    assert split_sentences(line, language) == library(line, language)


@settings(max_examples=1000, deadline=None)
@given(TEXTS)
def test_hidden_quotes_leave_every_other_character_in_its_place(text):
    shown = sentences._hide_quotes(text)
    assert len(shown) == len(text)
    changed = {a for a, b in zip(text, shown, strict=True) if a != b}
    assert all(c in "\"'“”‘’„«»`" or c.isspace() for c in changed)


@pytest.mark.parametrize("name", ["wiki-01.jsonl.xz", "books-00.jsonl.xz"])
def test_corpora_lose_nothing_and_unquoted_lines_are_the_librarys(shared, name):
    quoted = checked = more = 0
    for line in corpus_lines(shared, name, 5_000_000):
        found = split_sentences(line)
        assert bare("".join(found)) == bare(line)
        if sentences._hide_quotes(line) == line:
            assert found == library(line)
            checked += 1
        else:
            more += len(found) - len(library(line))
            quoted += 1
    assert checked > 5_000
    assert quoted > 3_000
    assert more > 0, "hiding the quotes is meant to find sentences within speeches"


@pytest.mark.parametrize(
    "expected",
    [
        ["“I am going.", "You may stay,” said Tom.", "He left."],
        ['"Is it you?"', '"It is I."', "The door opened."],
        ["“Where are you going?” asked Alice.", "He sighed."],
        ["'It is late.", "Go home,' she said.", "He did."],
        ["‘It’s late.", "Go home,’ she said.", "They’re gone."],
        ["She said: \"He cried, 'Give it to me!'", 'And then he left."', "All wept."],
        ['The 12" record sold.', "It was loud.", 'The 7" one was rare.', "Few had it."],
        ["The boys' club met.", "The girls' club won.", "It's over."],
        ["The “Jeopardy!” show began.", "It ran."],
        ["Mr. Smith lives in the U.S.", "He paid $3.50 to J. R. R. Tolkien."],
    ],
)
def test_speeches_are_split_and_quotes_stay_with_their_sentences(expected):
    assert split_sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    ("language", "blank", "expected"),
    [
        ("fr", " ", ["« Tu pars ? » demanda-t-il.", "« Je pars.", "Tu restes. »", "Il sort."]),
        ("de", " ", ["„Gehst du?“ fragte er.", "„Ich gehe.", "Du bleibst.“", "Er ging z.B. heim."]),
        ("de", " ", ["»Ich gehe.", "Du bleibst.«", "Er ging."]),
        ("el", " ", ["«Φεύγεις;» ρώτησε.", "«Φεύγω.", "Μείνε.»", "Βγήκε."]),
        ("hi", " ", ["“मैं जाऊँगा।", "तुम रुको।”", "वह गया।"]),
        ("ja", "", ["“行く。", "君は残れ。”", "“いいよ。”", "彼は出た。"]),
    ],
)
def test_quotes_of_other_languages(language, blank, expected):
    assert split_sentences(blank.join(expected), language) == expected


def test_a_blank_between_initial_and_stop_does_not_end_the_program():
    for blank in "\u00a0\u0085\u2009\u202f\u3000":
        text = f"It was plan X{blank}. Then he left."
        assert split_sentences(text) == [f"It was plan X{blank}.", "Then he left."]


def test_after_a_panic_of_the_library_the_line_is_split_plainly():
    line = "X\u00a0. He left. “So it is.” etc."
    try:
        sentencex.segment("en", line)
    except BaseException as error:
        found = sentences._split_after_failure(line, error)
        assert [s.strip() for s in found] == ["X\u00a0.", "He left.", "“So it is.” etc."]
    else:
        pytest.skip("this sentencex does not panic any more")


def test_other_failures_are_not_caught():
    with pytest.raises(KeyboardInterrupt):
        sentences._split_after_failure("a", KeyboardInterrupt())


def test_half_a_surrogate_pair_is_named():
    with pytest.raises(DataError, match=r"'He left\. \\ud83d'.*errors='replace'"):
        split_sentences("He left. \ud83d Then")


def test_a_chapter_on_one_line_gives_the_sentences_of_its_paragraphs(shared):
    for name in ("wiki-00.jsonl.xz", "books-00.jsonl.xz"):
        lines = [x.strip() for x in corpus_lines(shared, name, 300_000) if x.strip()]
        apart = sum(len(split_sentences(line)) for line in lines)
        together = len(split_sentences(" ".join(lines)))
        assert 0.95 * apart < together <= apart
        # The reason to cut long lines, and to hide quotes.
        assert len(library(" ".join(lines))) < 0.9 * apart


def test_a_long_line_without_ends_of_sentences_stays_whole():
    line = "word " * 10_000
    assert split_sentences(line) == [line.strip()]


def test_own_languages_have_rules_of_their_own():
    for code in set(LANGUAGES) - {"en"}:
        assert check_language(code) == code
        assert any(library(t, code) != library(t, "en") for t in PROBES), code


@pytest.mark.parametrize("code", ["zh", "tr", "sv", "xx", "english", ""])
def test_codes_that_the_library_would_take_for_english_are_refused(code):
    assert all(library(t, code) == library(t, "en") for t in PROBES)
    with pytest.raises(DataError, match=r"has no sentence rules.*Take 'en'"):
        check_language(code)


@pytest.mark.parametrize(
    ("code", "near"), [("EN", "'en'"), ("pt-br", "'pt'"), ("de_AT", "'de'"), ("eng", "'en'")]
)
def test_refused_languages_name_the_near_one(code, near):
    with pytest.raises(DataError, match=f"language '{code}' .*did you mean {near}"):
        split_sentences("He left. She stayed.", code)


def test_the_empty_text_has_no_sentence():
    assert split_sentences("") == split_sentences(" \n\t\n") == []
