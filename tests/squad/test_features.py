"""Windows hold every token, labels hold only true answers, and what is lost is counted."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bert_lamb.cli import main
from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import WordPiece
from bert_lamb.squad import answers
from bert_lamb.squad.dataset import Answer, Dataset, Paragraph, Question
from bert_lamb.squad.features import FeatureOptions, make_features
from bert_lamb.squad.labels import IN_NO_WINDOW, NO_TOKEN, make_labels

SMALL = FeatureOptions(seq_length=16, stride=3, max_query=4)


def data(context: str, *questions: Question, version: str = "2.0") -> Dataset:
    return Dataset("made up", version, (Paragraph("T", context),), questions)


def question(id: str, *spans: tuple[str, int], text: str = "who is") -> Question:
    return Question(id, text, 0, tuple(Answer(t, start) for t, start in spans))


def test_rows_are_cls_question_sep_part_sep_pad(tokenizer):
    made = make_features(data("a b c", question("q")), tokenizer, SMALL)
    rows = made.rows([0, -1])
    ids = {name: i for i, name in enumerate(tokenizer.tokens)}
    names = ["[CLS]", "who", "is", "[SEP]", "a", "b", "c", "[SEP]"]
    assert rows["input_ids"][0].tolist() == [ids[name] for name in names] + [tokenizer.pad_id] * 8
    assert rows["input_mask"].tolist() == [[1] * 8 + [0] * 8, [1] * 3 + [0] * 13]
    assert rows["segment_ids"].tolist() == [[0] * 4 + [1] * 4 + [0] * 8, [0] * 2 + [1] + [0] * 13]
    assert rows["feature"].tolist() == [0, -1]
    assert {key: value.dtype for key, value in rows.items()} == dict.fromkeys(rows, np.int32)
    empty = rows["input_ids"][1, :3].tolist()
    assert empty == [tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id]


@given(st.integers(0, 60), st.integers(1, 6), st.integers(8, 24), st.integers(1, 12))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_windows_are_googles_and_hold_every_token(
    tokenizer, rules, size, query, seq_length, stride
):
    if stride > seq_length - 6 - 3:
        with pytest.raises(DataError, match=f"stride {stride} > room {seq_length - 9}"):
            FeatureOptions(seq_length, stride, 6)
        return
    context, text = " ".join("x" * size), " ".join("y" * query)
    options = FeatureOptions(seq_length, stride, 6)
    made = make_features(data(context, question("q", text=text)), tokenizer, options)
    spans = list(zip(made.first.tolist(), made.length.tolist(), strict=True))
    assert spans == rules.windows(size, seq_length - query - 3, stride)
    assert {t for first, length in spans for t in range(first, first + length)} == set(range(size))
    for w, best_here in enumerate(made.max_context(0)):
        first = spans[w][0]
        expected = [rules.best_window(spans, first + t) == w for t in range(spans[w][1])]
        assert best_here.tolist() == expected


def test_p80_a_stride_that_skips_tokens_is_refused_with_the_numbers(capsys, write_squad):
    with pytest.raises(DataError, match=r"stride 128 > room 60 .*64 - max_query 1 - 3"):
        FeatureOptions(seq_length=64, stride=128, max_query=1)
    path = write_squad(("x", []))
    assert main(["squad", "inspect", path, "--seq-length=64"]) == 1
    assert "stride 128 > room -3" in capsys.readouterr().err
    with pytest.raises(DataError, match="stride = 0: expected at least 1"):
        FeatureOptions(stride=0)


def test_a_question_longer_than_the_window_is_cut_and_counted(tokenizer):
    long = " ".join("x" * 100)
    made = make_features(data("a b c", question("q", text=long)), tokenizer, SMALL)
    assert made.cut == (0,)
    assert len(made.queries[0]) == SMALL.max_query
    assert made.rows([0])["input_mask"].sum() == 3 + 4 + 3


def test_p81_a_blank_context_has_no_feature_and_harms_no_other(tokenizer, make_dataset, make_qa):
    made = make_dataset(("", [make_qa("a")]), ("Paris", [make_qa("b", ("Paris", 0))]),
                        (" \n\u200b ", [make_qa("c")]))  # fmt: skip
    features = make_features(made, tokenizer, SMALL)
    assert features.question.tolist() == [1]
    assert features.bounds.tolist() == [0, 0, 1, 1]
    only_blank = make_features(make_dataset(("", [make_qa("a")])), tokenizer, SMALL)
    assert len(only_blank) == 0
    assert only_blank.rows([])["input_ids"].shape == (0, 16)


def test_labels_are_positions_of_the_answer_in_each_window_that_holds_it(tokenizer):
    context = "a b c d e f g h i j k l m n"
    spans = [("a", 0), ("n", 26), ("g h", 12), ("d e f g h i j k l", 6)]
    made = data(context, *(question(f"q{i}", span) for i, span in enumerate(spans)), question("no"))
    features = make_features(made, tokenizer, SMALL)
    labels = make_labels(made, features)
    rows = features.rows(range(len(features)))["input_ids"]
    for f in range(len(features)):
        number = features.question[f]
        begin, end = labels.start[f], labels.end[f]
        if labels.inside[f]:
            text = spans[number][0]
            assert [tokenizer.tokens[i] for i in rows[f, begin : end + 1]] == text.split()
        else:
            assert (begin, end) == (0, 0)
    with_answer = [labels.inside[features.question == i].sum() for i in range(5)]
    assert with_answer[:2] == [1, 1]  # at the first and the last character
    assert with_answer[2] >= 2
    assert with_answer[3:] == [1, 0]
    assert labels.trainable.all()
    assert not labels.lost


def test_annotators_vote_and_the_first_wins_among_equals(tokenizer):
    q = question("q", ("a", 0), ("b c", 2), ("b c", 2))
    tie = question("t", ("c", 4), ("a", 0))
    made = data("a b c", q, tie)
    labels = make_labels(made, make_features(made, tokenizer, SMALL))
    assert list(zip(labels.start.tolist(), labels.end.tolist(), strict=True)) == [(5, 6), (6, 6)]


def test_p86_no_unmatched_span_is_learned_and_each_loss_has_a_reason(
    tokenizer, make_dataset, make_qa
):
    made = make_dataset(("a b c d e f g h i j k l m \u200b n", [
        make_qa("fine", ("n", 28)),
        make_qa("moved", ("b", 3)),
        make_qa("outside", ("b", 500)),
        make_qa("case", ("B", 2)),
        make_qa("empty", ("", 0)),
        make_qa("half", ("B", 2), ("c", 4)),
        make_qa("long", ("a b c d e f g h i j k l m", 0)),
        make_qa("unseen", ("\u200b", 26)),
    ]))  # fmt: skip
    features = make_features(made, tokenizer, SMALL)
    labels = make_labels(made, features)
    assert labels.lost == {
        answers.OUTSIDE: ("outside",), answers.OTHER_CASE: ("case", "half"),
        answers.EMPTY: ("empty",), IN_NO_WINDOW: ("long",), NO_TOKEN: ("unseen",),
    }  # fmt: skip
    gone = ("outside", "case", "empty", "long", "unseen")
    assert labels.unteachable == gone
    ids = [made.questions[number].id for number in features.question]
    assert [id not in gone for id in ids] == labels.trainable.tolist()
    taught = {ids[f]: labels.start[f] for f in np.flatnonzero(labels.inside)}
    assert taught.keys() == {"fine", "moved", "half"}
    assert not labels.inside[~labels.trainable].any()
    text = labels.describe(1)
    assert "3 of 9 answers (33.333%) are inside of a window" in text
    assert f"1 lost: {IN_NO_WINDOW}: long" in text
    assert "1 answers are longer than 1 tokens" in text


def test_unlabelled_questions_are_not_trained_on(tokenizer):
    made = data("a b", Question("q", "who", 0, (), labelled=False))
    assert not make_labels(made, make_features(made, tokenizer, SMALL)).trainable.any()


def test_answers_inside_of_a_token_are_counted_as_inexact(tokenizer):
    made = data("the 1889s towers", question("q", ("tower", 10)), question("p", ("the", 0)))
    labels = make_labels(made, make_features(made, tokenizer, FeatureOptions()))
    assert labels.inexact == ()  # "tower" and "##s"
    coarser = WordPiece([*tokenizer.tokens, "towers"])
    labels = make_labels(made, make_features(made, coarser, FeatureOptions()))
    assert labels.inexact == ("q",)


def test_the_inspect_verb_counts_windows(tokenizer, tmp_path, write_squad, make_qa, capsys):
    tokenizer.save(tmp_path / "vocab")
    path = write_squad(("the tower", [make_qa("q", ("tower", 4), question="who " * 70)]))
    assert main(["squad", "inspect", path, f"--vocab={tmp_path / 'vocab'}"]) == 0
    out = capsys.readouterr().out
    assert "1 windows of 384 tokens, stride 128" in out
    assert "1 questions are longer than 64 tokens and cut: q" in out
    assert "1 of 1 answers (100.000%) are inside of a window" in out
