"""Answers are the best allowed spans, slices of the raw context, in the official files."""

import json
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from bert_lamb.data.errors import DataError
from bert_lamb.squad.dataset import Answer, Dataset, Paragraph, Question
from bert_lamb.squad.features import FeatureOptions, Features, make_features
from bert_lamb.squad.labels import make_labels
from bert_lamb.squad.predicting import (
    CERTAINLY_NULL,
    Prediction,
    PredictionOptions,
    in_order,
    predict,
)
from bert_lamb.squad.writing import write_predictions

SMALL = FeatureOptions(seq_length=16, stride=3, max_query=4)
RAW = "a\u00a0b  \U0001f600\r\ncafe\u0301 d e a f g h i j"


def data(*contexts: str, version: str = "2.0") -> Dataset:
    questions = tuple(Question(f"q{i}", "who is", i) for i in range(len(contexts)))
    return Dataset("made up", version, tuple(Paragraph("T", c) for c in contexts), questions)


def run(dataset, features, start, end, **options) -> list[Prediction]:
    return list(predict(dataset, features, start, end, PredictionOptions(**options)))


def brute_force(
    features: Features, context: str, start: np.ndarray, end: np.ndarray, longest: int
) -> dict[str, float]:
    """Best score of each text, over all spans of all windows."""
    found: dict[str, float] = {}
    best_here, tokens = features.max_context(0), features.contexts[0]
    for f in range(len(features)):
        first, begin = int(features.first[f]), int(features.offset[f])
        for i in range(features.length[f]):
            for j in range(i, min(i + longest, features.length[f])):
                if best_here[f][i]:
                    text = context[tokens.starts[first + i] : tokens.ends[first + j]]
                    score = float(start[f, begin + i]) + float(end[f, begin + j])
                    found[text] = max(score, found.get(text, -math.inf))
    return found


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from(["1.1", "2.0"]),
    st.sampled_from([-3.0, 0.0, 2.0]),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_the_best_spans_are_those_of_brute_force(
    tokenizer, seed, n_best, longest, version, threshold, coarse
):
    made = data(RAW, version=version)
    features = make_features(made, tokenizer, SMALL)
    random = np.random.default_rng(seed)
    start, end = random.normal(size=(2, len(features), 16)).astype(np.float32) * 3
    if coarse:  # many equal scores
        start, end = start.round(), end.round()
    (found,) = run(made, features, start, end, n_best=n_best, max_answer_tokens=longest,
                   null_threshold=threshold)  # fmt: skip
    spans = brute_force(features, RAW, start, end, longest)
    if version == "2.0":
        null = float((start[:, 0].astype(float) + end[:, 0]).min())
        best = max(spans.values())
        assert found.null_odds == pytest.approx(null - best)
        is_null = found.null_odds > threshold
        assert found.text == ("" if is_null else found.best_span.text)
        assert found.best_span.score == pytest.approx(best)
        spans[""] = null
    else:
        assert found.null_odds is None
        assert spans[found.text] == pytest.approx(max(spans.values()))
    ranked = sorted(spans.values(), reverse=True)[:n_best]
    as_good = (
        [score for text, score in spans.items() if text and score >= null]
        if version == "2.0"
        else []
    )
    if len(as_good) >= n_best:  # a span goes before a null of its score
        ranked.append(null)
    assert [c.score for c in found.candidates] == pytest.approx(ranked)
    assert len({c.text for c in found.candidates}) == len(found.candidates)
    for candidate in found.candidates:
        assert spans[candidate.text] == pytest.approx(candidate.score)
        if candidate.text:
            assert candidate.text == RAW[candidate.start : candidate.end]
            assert candidate.text == candidate.text.strip()
    weights = np.exp(np.array(ranked) - max(ranked))
    probabilities = [math.exp(c.log_probability) for c in found.candidates]
    assert probabilities == pytest.approx((weights / weights.sum()).tolist())


def test_p87_predicted_texts_are_exact_slices_of_odd_contexts(tokenizer):
    context = "I\u00a0saw  \U0001f600\r\ncafe\u0301\u200b \ufb01n. e\u0301"
    made = data(context, version="1.1")
    features = make_features(made, tokenizer, FeatureOptions())
    tokens = features.contexts[0]
    for first, last, text in (
        (0, 0, "I"), (4, 4, "\U0001f600"), (4, 8, "\U0001f600\r\ncafe\u0301"),
        (len(tokens.ids) - 1, len(tokens.ids) - 1, "e\u0301"), (0, len(tokens.ids) - 1, context),
    ):  # fmt: skip
        start, end = np.zeros((2, 1, 384), np.float32)
        start[0, 4 + first] = end[0, 4 + last] = 10
        (found,) = run(made, features, start, end)
        assert found.text == text


def test_p81_a_blank_context_is_answered_by_nothing_and_harms_no_other(tokenizer):
    for version in ("1.1", "2.0"):
        made = data("", "Paris", "  ", version=version)
        features = make_features(made, tokenizer, SMALL)
        start, end = np.zeros((2, 1, 16), np.float32)
        start[0, 4] = 5
        found = run(made, features, start, end)
        assert [p.text for p in found] == ["", "Paris", ""]
        assert [p.best_span is None for p in found] == [True, False, True]
        if version == "2.0":
            assert [p.null_odds for p in found] == [CERTAINLY_NULL, -5.0, CERTAINLY_NULL]


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_p91_without_an_allowed_span_the_answer_is_empty_with_score_zero(tokenizer, version):
    made = data("Paris", " ", version=version)
    features = make_features(made, tokenizer, SMALL)
    start, end = np.full((2, 1, 16), -np.inf, np.float32)
    start[0, 0] = end[0, 0] = 0
    for found in run(made, features, start, end):
        assert found.text == ""
        (only,) = found.candidates
        assert (only.text, only.start_logit, only.end_logit) == ("", 0.0, 0.0)
        assert only.log_probability == 0.0


def test_an_answer_is_null_only_above_the_threshold(tokenizer):
    made = data("Paris")
    features = make_features(made, tokenizer, SMALL)
    start, end = np.zeros((2, 1, 16), np.float32)
    start[0, 0] = 1.5
    assert run(made, features, start, end, null_threshold=1.5)[0].text == "Paris"
    assert run(made, features, start, end, null_threshold=1.49)[0].text == ""


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("position", [0, 4])
def test_logits_that_are_no_numbers_name_the_question(tokenizer, value, position):
    made = data("Paris", "Paris")
    features = make_features(made, tokenizer, SMALL)
    start, end = np.zeros((2, 2, 16), np.float32)
    end[1, position] = value
    with pytest.raises(DataError, match="question 'q1': logits"):
        run(made, features, start, end)


def test_wrong_shapes_and_options_are_refused(tokenizer):
    made = data("Paris")
    features = make_features(made, tokenizer, SMALL)
    with pytest.raises(DataError, match=r"start_logits of shape \(2, 16\): expected \(1, 16\)"):
        run(made, features, np.zeros((2, 16)), np.zeros((1, 16)))
    for options in ({"n_best": 0}, {"max_answer_tokens": 0}, {"null_threshold": math.nan}):
        with pytest.raises(DataError, match=f"{next(iter(options))} = "):
            PredictionOptions(**options)


def test_logits_are_put_in_order_from_any_host(tokenizer):
    made = data(RAW, RAW)
    features = make_features(made, tokenizer, SMALL)
    start, end = np.random.default_rng(0).normal(size=(2, len(features), 16)).astype(np.float32)
    order = np.append(np.random.default_rng(1).permutation(len(features)), [-1, -1])
    blocks = [(part, start[part], end[part]) for part in np.array_split(order, 3)]
    for wanted, found in zip((start, end), in_order(blocks, features), strict=True):
        assert (wanted == found).all()
    with pytest.raises(DataError, match=r"feature \d+ came 0 times, .* features are missing"):
        in_order(blocks[1:], features)
    with pytest.raises(DataError, match=r"feature \d+ came 2 times"):
        in_order([*blocks, blocks[0]], features)
    with pytest.raises(DataError, match="feature 99: expected 0 to"):
        in_order([(np.array([99]), start[:1], end[:1])], features)
    with pytest.raises(DataError, match=r"logits of shape \(1, 3\)"):
        in_order([(np.array([0]), start[:1, :3], end[:1])], features)


def test_the_official_files(tokenizer, tmp_path):
    made = data("caf\u00e9 \ud83d lone", " ")
    features = make_features(made, tokenizer, SMALL)
    start, end = np.zeros((2, len(features), 16), np.float32)
    start[0, 4], end[0, 7] = 3, 2
    found = run(made, features, start, end, n_best=3)
    files = write_predictions(tmp_path / "new", found)
    assert [file.name for file in files] == ["predictions.json", "nbest.json", "null_odds.json"]
    texts, nbest, odds = (json.loads(file.read_text()) for file in files)
    assert texts == {"q0": "caf\u00e9", "q1": ""}
    assert odds == {"q0": -5.0, "q1": CERTAINLY_NULL}
    assert nbest["q0"][0].keys() >= {"text", "probability", "start_logit", "end_logit"}
    assert sum(entry["probability"] for entry in nbest["q0"]) == pytest.approx(1)
    assert "" in [entry["text"] for entry in nbest["q0"]]
    plain = [Prediction(p.id, p.text, p.candidates, p.best_span, None) for p in found]
    assert len(write_predictions(tmp_path / "v1", plain)) == 2


def test_perfect_logits_give_the_answers_back(tokenizer):
    context = "the tower of paris was built in 1889."
    places = [("the tower", 0), ("1889.", 32), ("built", 23)]
    questions = tuple(Question(f"q{i}", "what was", 0, (Answer(*p),)) for i, p in enumerate(places))
    made = Dataset(
        "made up", "2.0", (Paragraph("T", context),), (*questions, Question("n", "x", 0))
    )
    features = make_features(made, tokenizer, FeatureOptions(seq_length=20, stride=4, max_query=4))
    labels = make_labels(made, features)
    start, end = np.zeros((2, len(features), 20), np.float32)
    start[np.arange(len(features)), labels.start] = 9
    end[np.arange(len(features)), labels.end] = 9
    assert [p.text for p in run(made, features, start, end)] == [*(t for t, _ in places), ""]
