"""Data sets are read and checked early: versions, types at any depth, places of answers."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bert_lamb.cli import main
from bert_lamb.data.errors import DataError
from bert_lamb.squad import answers
from bert_lamb.squad.answers import locate
from bert_lamb.squad.reading import read_dataset

CONTEXT = "The tower of Paris was built in 1889."


@pytest.fixture
def v1(make_qa):
    return (CONTEXT, [make_qa("a", ("Paris", 13)), make_qa("b", ("1889", 32), ("in 1889", 29))])


@pytest.fixture
def v2(make_qa):
    return (CONTEXT, [
        make_qa("a", ("Paris", 13), is_impossible=False),
        make_qa("b", is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}]),
    ])  # fmt: skip


def test_questions_answers_and_counts(write_squad, v1, v2):
    first = read_dataset(write_squad(v1, ("other", [])))
    assert first.version == "1.1"
    assert [(q.id, q.text, [a.text for a in q.answers]) for q in first.questions] == [
        ("a", "who?", ["Paris"]), ("b", "who?", ["1889", "in 1889"]),
    ]  # fmt: skip
    assert first.context(first.questions[1]) == CONTEXT
    assert first.describe().splitlines() == [
        "SQuAD v1.1: 1 articles, 2 paragraphs, 2 questions",
        "2 questions with 3 answers, 0 without",
    ]
    second = read_dataset(write_squad(v2))
    assert second.version == "2.0"
    assert [q.has_answer for q in second.questions] == [True, False]
    assert "1 questions with 1 answers, 1 without" in second.describe()


def test_the_real_sets_have_their_published_sizes(dev):
    sizes = {version: (data.version, len(data.questions)) for version, data in dev.items()}
    assert sizes == {"1.1": ("1.1", 10_570), "2.0": ("2.0", 11_873)}
    assert not dev["1.1"].faults
    assert not dev["2.0"].faults
    assert sum(question.has_answer for question in dev["2.0"].questions) == 5_928


def test_p84_the_version_is_seen_in_the_data_and_a_wrong_one_refused(write_squad, v1, v2, make_qa):
    old, new = write_squad(v1, name="v1.json"), write_squad(v2, name="v2.json")
    bare = write_squad((CONTEXT, [make_qa("a", ("Paris", 13)), make_qa("n")]), name="bare.json")
    assert read_dataset(old, "1.1").version == "1.1"
    assert read_dataset(new, "v2.0").version == "2.0"
    assert read_dataset(bare).version == "2.0"
    for path, version, problem in (
        (new, "1.1", r"v2\.json: asked for as SQuAD v1\.1, but question 'a' has 'is_impossible'"),
        (bare, "1.1", r"bare\.json: asked for as SQuAD v1\.1, but question 'n' has no answer"),
        (old, "2.0", r"v1\.json: asked for as SQuAD v2\.0, but it has no 'is_impossible' and"),
        (old, "3", r"SQuAD version '3': expected 1\.1 or 2\.0"),
    ):
        with pytest.raises(DataError, match=problem):
            read_dataset(path, version)


def test_files_without_answers_can_be_read_but_not_scored(write_squad):
    data = read_dataset(write_squad((CONTEXT, [{"id": "a", "question": "who?"}])))
    assert not data.questions[0].labelled
    assert "1 not labelled" in data.describe()
    with pytest.raises(DataError, match="question 'a' has no 'answers'"):
        data.require_labels()


@pytest.mark.parametrize(
    ("start", "place", "fault"),
    [
        (13, 13, ""),
        (14, 13, answers.MOVED),
        (10, 13, answers.MOVED),
        (-1, -1, answers.OUTSIDE),
        (10**6, -1, answers.OUTSIDE),
        (10**30, -1, answers.OUTSIDE),
        (25, -1, answers.MISMATCH),
    ],
)
def test_p86_places_of_answers_are_checked_mended_or_left_out(start, place, fault):
    found = locate(CONTEXT, "Paris", start)
    assert (found.text, found.start, found.fault) == ("Paris", place, fault)


def test_p86_other_faults_of_answers():
    assert locate(CONTEXT, "", 0) == answers.Answer("", -1, answers.EMPTY)
    assert locate(CONTEXT, "  ", 3).fault == answers.EMPTY
    assert locate(CONTEXT, "paris", 13) == answers.Answer("paris", -1, answers.OTHER_CASE)
    assert locate("", "x", 0).fault == answers.OUTSIDE
    assert locate("x y x", "x", 1).start == 0  # the nearer one; the first of two as near


def test_p87_places_in_other_units_are_understood():
    context = "\U0001f600\U0001f600 na\u00efve caf\u00e9 " * 3 + "Paris, France"
    place = context.index("Paris")
    assert locate(context, "Paris", place) == answers.Answer("Paris", place)
    utf16 = len(context[:place].encode("utf-16-le")) // 2
    assert locate(context, "Paris", utf16) == answers.Answer("Paris", place, answers.IN_UTF16)
    utf8 = len(context[:place].encode())
    assert locate(context, "Paris", utf8) == answers.Answer("Paris", place, answers.IN_BYTES)


def test_p86_faults_are_counted_by_cause_with_their_questions(write_squad, make_qa):
    data = read_dataset(write_squad((CONTEXT, [
        make_qa("a", ("Paris", -1), ("Paris", 10**6)),
        make_qa("b", ("Paris", 14)),
        make_qa("c", ("", 0)),
        make_qa("d", ("PARIS", 13), ("Paris", 13)),
    ]), ("\n ", [make_qa("e", ("x", 0))])))  # fmt: skip
    assert data.faults == {
        answers.OUTSIDE: ("a", "a"), answers.MOVED: ("b",), answers.EMPTY: ("c",),
        answers.OTHER_CASE: ("d",), answers.MISMATCH: ("e",),
    }  # fmt: skip
    lines = data.describe().splitlines()
    assert "1 questions on a blank context: e" in lines
    assert f"2 answers: {answers.OUTSIDE}: a, a" in lines


def broken(change: Any) -> dict[str, Any]:
    qas = [{"id": f"q{i}", "question": "?", "answers": [{"text": "tower", "answer_start": 4}]}
           for i in range(2)]  # fmt: skip
    value = {"data": [{"title": "T", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}
    change(value, value["data"][0]["paragraphs"][0])
    return value


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda v, p: v.pop("data"), r"the whole: no key 'data', expected a list; it has no keys"),
        (lambda v, p: v.update(data={}), r"data: \{\}, expected a list"),
        (lambda v, p: v.update(data=[]), "holds no question"),
        (lambda v, p: v.update(data=[7]), r"data\[0\]: 7, expected an object"),
        (lambda v, p: v["data"][0].update(title=3), r"data\[0\]\.title: 3, expected a string"),
        (lambda v, p: p.update(context=None), r"paragraphs\[0\]\.context: None, expected a string"),
        (lambda v, p: p["qas"][1].pop("id"), r"data\[0\]\.paragraphs\[0\]\.qas\[1\]: no key 'id'"),
        (lambda v, p: p["qas"][1].update(id=5), r"qas\[1\]\.id: 5, expected a string"),
        (lambda v, p: p["qas"][1].update(id="q0"), r"qas\[1\]: question id 'q0' is also that of "
         r"data\[0\]\.paragraphs\[0\]\.qas\[0\]"),
        (lambda v, p: p["qas"][1].pop("question"), r"qas\[1\] \(id 'q1'\): no key 'question'"),
        (lambda v, p: p["qas"][1].update(answers="x"), r"\(id 'q1'\)\.answers: 'x', expected a l"),
        (lambda v, p: p["qas"][0]["answers"][0].update(answer_start=1.0),
         r"\(id 'q0'\)\.answers\[0\]\.answer_start: 1\.0, expected an integer"),
        (lambda v, p: p["qas"][0]["answers"][0].update(answer_start=True), "True, expected an int"),
        (lambda v, p: p["qas"][0]["answers"][0].pop("text"), r"'q0'\)\.answers\[0\]: no key 'te"),
        (lambda v, p: p["qas"][0].update(is_impossible="no"), "'no', expected true or false"),
        (lambda v, p: p["qas"][0].update(is_impossible=True), "'q0'.: is_impossible is true, but"),
        (lambda v, p: p["qas"][0].update(is_impossible=False, answers=[]), "is false, but 'answ"),
    ],
)  # fmt: skip
def test_malformed_files_name_the_place(tmp_path, change, problem):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken(change)))
    with pytest.raises(DataError, match=problem) as caught:
        read_dataset(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"data": "\xff"}', "byte 10: not UTF-8"),
        (b"[]", "the whole: .*, expected an object"),
        (b'{"data": 1' + b"0" * 5000 + b"}", "not JSON"),
    ],
)
def test_files_that_are_no_json_objects_say_so(tmp_path, content, problem, capsys):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=problem):
        read_dataset(str(path))
    assert main(["squad", "inspect", str(path)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) \
        if isinstance(value, list) else ()  # fmt: skip
    return [path, *(found for key, item in inner for found in nodes(item, (*path, key)))]


WHOLE = broken(lambda value, paragraph: paragraph["qas"][0].update(is_impossible=False))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(st.lists(st.tuples(st.sampled_from(nodes(WHOLE)[1:]), junk | st.just(...)), max_size=3))
@settings(max_examples=150, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_files_with_anything_anywhere_are_read_or_name_the_place(tmp_path, changes):
    value = copy.deepcopy(WHOLE)
    for path, new in changes:
        place: Any = value
        try:
            for key in path[:-1]:
                place = place[key]
            if new is ...:
                del place[path[-1]]
            else:
                place[path[-1]] = new
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    file = tmp_path / "any.json"
    file.write_text(json.dumps(value))
    try:
        data = read_dataset(str(file))
    except DataError as error:
        said = str(error)
    else:
        assert data.questions
        return
    assert said.startswith(f"{file}: ")
    assert "\n" not in said
    assert any(sign in said for sign in ("data", "the whole", "holds no question"))


def test_bom_packed_and_file_addresses_are_read(tmp_path, write_squad, v1):
    plain = Path(write_squad(v1)).read_bytes()
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + plain)
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(plain))
    for name in ("bom.json", "packed.json.gz"):
        assert len(read_dataset(str(tmp_path / name)).questions) == 2
    with pytest.raises(DataError, match=r"nowhere\.json: cannot be read"):
        read_dataset(str(tmp_path / "nowhere.json"))
    with pytest.raises(DataError, match="cannot be read"):
        read_dataset(str(tmp_path))
    with pytest.raises(DataError, match=r"gs://no-such-bucket/dev\.json"):
        read_dataset("gs://no-such-bucket/dev.json")
