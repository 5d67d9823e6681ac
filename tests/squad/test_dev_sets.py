"""Every answer of the development sets: text to tokens to text, and into windows."""

import numpy as np
import pytest

from bert_lamb.data.tokenization import TextOptions, Tokenizer, load_tokenizer
from bert_lamb.squad.dataset import Dataset
from bert_lamb.squad.evaluating import evaluate
from bert_lamb.squad.features import Features, make_features
from bert_lamb.squad.labels import Labels, make_labels
from bert_lamb.squad.predicting import PredictionOptions, predict

LONGEST = PredictionOptions().max_answer_tokens


def vocabulary(shared, name: str) -> Tokenizer:
    path = shared / f"data/vocab/bert-base-{name}-vocab.txt"
    return load_tokenizer(path, TextOptions(lowercase=name == "uncased"))


@pytest.fixture(scope="module")
def uncased(shared, dev) -> dict[str, tuple[Dataset, Features, Labels]]:
    tokenizer = vocabulary(shared, "uncased")
    made = {}
    for version, data in dev.items():
        features = make_features(data, tokenizer)
        made[version] = data, features, make_labels(data, features)
    return made


def check_round_trips(data: Dataset, features: Features, labels: Labels) -> None:
    """Exact wherever an answer begins and ends with a token; else the fewest tokens around it."""
    inside = 0
    for number, question in enumerate(data.questions):
        context, tokens = data.context(question), features.tokens(number)
        starts, ends = set(tokens.starts.tolist()), set(tokens.ends.tolist())
        for answer in question.answers:
            begin, end = answer.start, answer.start + len(answer.text)
            span = tokens.cover(begin, end)
            assert span is not None, question.id
            low, high = int(tokens.starts[span[0]]), int(tokens.ends[span[1]])
            if begin in starts and end in ends:
                assert context[low:high] == answer.text, question.id
                continue
            inside += 1
            assert low <= begin < int(tokens.ends[span[0]]), question.id
            assert int(tokens.starts[span[1]]) < end <= high, question.id
            assert (low, high) != (begin, end)
    assert len(labels.inexact) == inside
    # What is cut is a word of letters and digits, such as "8" in "18": no token could be shorter.
    assert inside < 0.002 * labels.answers


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_every_answer_comes_back_from_its_tokens(uncased, version):
    check_round_trips(*uncased[version])


def test_every_answer_comes_back_from_cased_tokens(shared, dev):
    data = dev["2.0"]
    features = make_features(data, vocabulary(shared, "cased"))
    labels = make_labels(data, features)
    check_round_trips(data, features, labels)
    assert not labels.lost


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_every_answer_is_inside_of_a_published_window(uncased, version):
    _, features, labels = uncased[version]
    assert features.options.seq_length == 384
    assert labels.lost == {}
    assert labels.trainable.all()


@pytest.mark.parametrize(
    ("version", "least"), [pytest.param("1.1", 99.9, marks=pytest.mark.slow), ("2.0", 99.9)]
)
def test_logits_that_know_the_answers_score_nearly_everything(uncased, version, least):
    """The ceiling of windows, tokens, answer length, and of scoring with one's own answers."""
    data, features, labels = uncased[version]
    shape = (2, len(features), features.options.seq_length)
    start, end = np.random.default_rng(0).random(shape, np.float32)
    rows = np.flatnonzero(labels.inside)
    start[rows, labels.start[rows]] = end[rows, labels.end[rows]] = 9
    start[~labels.inside, 0] = end[~labels.inside, 0] = 9
    found = list(predict(data, features, start, end, PredictionOptions(n_best=1)))
    odds = None if version == "1.1" else {p.id: p.null_odds for p in found}
    scores = evaluate(data, {p.id: p.text for p in found}, odds, 0.0).metrics
    assert scores["f1"] > least
    wrong = 100 - scores["exact_match" if version == "1.1" else "exact"]
    far = (labels.token_lengths > LONGEST).sum() + len(labels.inexact)
    assert wrong <= 100 * far / len(data.questions)
    if version == "2.0":
        assert scores["NoAns_exact"] == 100.0
        assert scores["pr_oracle_ap"] == pytest.approx(100.0)
