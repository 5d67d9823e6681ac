"""Scores equal the official ones, on published and on made-up predictions."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bert_lamb.cli import main
from bert_lamb.data.errors import DataError
from bert_lamb.squad.curves import plot_curves, precision_recall
from bert_lamb.squad.dataset import Answer, Dataset, Paragraph, Question
from bert_lamb.squad.evaluating import evaluate, read_null_odds, read_predictions
from bert_lamb.squad.reading import read_dataset
from bert_lamb.squad.scoring import exact_match, f1, normalize_answer
from bert_lamb.squad.thresholds import tune_threshold

PIECES = [
    "the", "The", "a", "an", "theme", "cat", "Cat,", "dog", "U.S.", "é", "1,000", "don't", "a-b",
    "_a_", "the_", " ", "\t", "\u00a0", "—", "“x”", "A.", "ß", "the\u2019s", "İ",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=5).map(" ".join) | st.text(max_size=6)
odds_values = st.sampled_from([-3.0, -1.5, 0.0, 0.25, 1.0, 1.5, 7.0]) | st.floats(-9, 9)


def dataset(gold: list[list[str]], version: str) -> Dataset:
    questions = tuple(
        Question(f"q{i}", "who?", 0, tuple(Answer(text, -1) for text in answers))
        for i, answers in enumerate(gold)
    )
    return Dataset("made up", version, (Paragraph("T", "context"),), questions)


@pytest.mark.parametrize("part", ["dev", "split-validation"])
@pytest.mark.parametrize("name", ["bert-ensemble", "logreg", "rnet"])
def test_published_v1_predictions_get_their_official_scores(shared, dev, name, part):
    folder = shared / "data/squad"
    expected = json.loads((folder / "expected.json").read_text())["v1.1"][name][part]
    predictions = read_predictions(str(folder / f"pred-v1.1-{name}.json"))
    data = dev["1.1"] if part == "dev" else read_dataset(str(folder / f"{part}-v1.1.json"))
    found = evaluate(data, predictions)
    for metric, value in expected.items():
        assert found.metrics[metric] == pytest.approx(value, abs=1e-9, rel=0)


def test_published_v2_predictions_get_their_official_scores(shared, dev):
    folder = shared / "data/squad"
    expected = json.loads((folder / "expected.json").read_text())["v2.0"]["bert-single"]
    predictions = read_predictions(str(folder / "pred-v2.0-bert-single.json"))
    found = evaluate(dev["2.0"], predictions)
    assert list(found.metrics) == list(expected)
    for metric, value in expected.items():
        assert found.metrics[metric] == pytest.approx(value, abs=1e-9, rel=0)


@given(st.lists(st.tuples(st.lists(texts, min_size=1, max_size=3), texts | st.none()), min_size=1))
@settings(max_examples=60, deadline=None)
def test_v1_scores_are_those_of_the_published_rules(rules, rows):
    gold = [answers for answers, _ in rows]
    predictions = {f"q{i}": text for i, (_, text) in enumerate(rows) if text is not None}
    if not predictions:
        return
    found = evaluate(dataset(gold, "1.1"), predictions)
    expected = rules.scores_v1({f"q{i}": answers for i, answers in enumerate(gold)}, predictions)
    assert found.missing == tuple(f"q{i}" for i, (_, text) in enumerate(rows) if text is None)
    for metric, value in expected.items():
        assert found.metrics[metric] == pytest.approx(value, abs=1e-9)


rows_v2 = st.lists(st.tuples(st.lists(texts, max_size=3), texts, odds_values), min_size=1)


@given(rows_v2, odds_values, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_v2_scores_and_thresholds_are_those_of_the_published_rules(rules, rows, threshold, random):
    gold = {f"q{i}": answers for i, (answers, _, _) in enumerate(rows)}
    predictions = {f"q{i}": text for i, (_, text, _) in enumerate(rows)}
    order = list(range(len(rows)))
    random.shuffle(order)  # of equal odds the file's order decides
    odds = {f"q{i}": rows[i][2] for i in order}
    data = dataset(list(gold.values()), "2.0")
    plain = evaluate(data, predictions).metrics
    assert plain == pytest.approx(rules.scores_v2(gold, predictions), abs=1e-9)
    found = evaluate(data, predictions, odds, threshold).metrics
    assert found == pytest.approx(rules.scores_v2(gold, predictions, odds, threshold), abs=1e-9)


@given(
    st.lists(st.tuples(odds_values, st.sampled_from([0.0, 0.4, 1.0]), st.booleans()), min_size=1)
)
@settings(max_examples=150, deadline=None)
def test_p83_tuned_threshold_equals_brute_force(rules, rows):
    odds, scores, has_answer = map(list, zip(*rows, strict=True))
    found = tune_threshold(odds, scores, has_answer)
    best, value = rules.best_threshold(odds, scores, has_answer)
    assert found.score == pytest.approx(best, abs=1e-9)
    is_null = np.array(odds) > found.value
    reached = np.where(is_null, ~np.array(has_answer), scores).mean()
    assert 100 * reached == pytest.approx(best, abs=1e-9)
    if value > -np.inf:
        assert found.value == value


def test_p83_best_thresholds_of_five_questions_are_those_on_paper():
    gold = [["cat"], ["dog"], [], [], ["cow"]]
    texts = ["cat", "a dog barks", "owl", "", "hen"]
    odds = dict(zip(["q0", "q1", "q2", "q3", "q4"], [-4.0, -1.0, 0.5, 3.0, 2.0], strict=True))
    predictions = {f"q{i}": text for i, text in enumerate(texts)}
    found = evaluate(dataset(gold, "2.0"), predictions, odds)
    # Null for all: 2 right. q0 in: 3. q1 in: 3 and F1 2/3. q2 in: one less; q4 adds nothing.
    assert found.metrics["best_exact"] == pytest.approx(60.0)
    assert found.metrics["best_exact_thresh"] == -4.0
    assert found.metrics["best_f1"] == pytest.approx(20 * (3 + 2 / 3))
    assert found.metrics["best_f1_thresh"] == -1.0
    assert found.notes == ()


def test_a_best_score_that_no_threshold_gives_is_noted():
    found = evaluate(dataset([["x"], []], "2.0"), {"q0": "x", "q1": "y"}, {"q0": 1.0, "q1": 1.0})
    assert found.metrics["best_exact"] == 100.0  # as the official script says
    assert "no threshold scores more than 50.0000" in found.notes[0]


def test_oracle_average_precision_is_that_of_scikit_learn():
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng(0)
    odds = np.round(random.normal(size=200), 1)
    has_answer = random.random(200) < 0.4
    curve = precision_recall(odds, has_answer.astype(float), has_answer)
    expected = average_precision_score(has_answer, -odds)
    assert curve.average_precision == pytest.approx(100 * expected, abs=1e-9)


@pytest.mark.slow  # loads PyTorch
def test_published_v2_predictions_score_as_in_transformers(shared, dev):
    metrics = pytest.importorskip("transformers.data.metrics.squad_metrics")
    folder = shared / "data/squad"
    predictions = read_predictions(str(folder / "pred-v2.0-bert-single.json"))
    data = dev["2.0"]
    for question in data.questions[::7]:
        for answer in question.answers:
            text = predictions[question.id]
            assert exact_match(text, answer.text) == metrics.compute_exact(answer.text, text)
            assert f1(text, answer.text) == pytest.approx(metrics.compute_f1(answer.text, text))
    random = np.random.default_rng(0)
    odds = {q.id: float(random.normal() + (not q.has_answer)) for q in data.questions}
    found = evaluate(data, predictions, odds)
    has_answer = {q.id: q.has_answer for q in data.questions}
    texts = {q.id: [a.text for a in q.answers if normalize_answer(a.text)] or [""]
             for q in data.questions}  # fmt: skip
    for name, rule in (("exact", metrics.compute_exact), ("f1", metrics.compute_f1)):
        raw = {id: max(rule(a, predictions[id]) for a in set(texts[id])) for id in texts}
        best, threshold = metrics.find_best_thresh(predictions, raw, odds, has_answer)
        assert found.metrics[f"best_{name}"] == pytest.approx(best, abs=1e-9)
        assert found.metrics[f"best_{name}_thresh"] == threshold
        cut = metrics.apply_no_ans_threshold(raw, odds, has_answer, 1.0)
        assert found.metrics[name] == pytest.approx(100 * sum(cut.values()) / len(cut), abs=1e-9)


@pytest.mark.parametrize(
    ("text", "normal"),
    [("The  U.S.", "us"), ("a\u00a0cat", "cat"), ("“The” end", "“ ” end"),
     ("ANother an", "another"), ("theme_a the_", "themea"), ("", "")],
)  # fmt: skip
def test_normalized_answers(text, normal):
    assert normalize_answer(text) == normal


def test_two_empty_answers_score_zero_f1_in_v1_and_one_in_v2():
    assert evaluate(dataset([["the"]], "1.1"), {"q0": "a"}).metrics["f1"] == 0.0
    assert evaluate(dataset([[]], "2.0"), {"q0": "a"}).metrics["f1"] == 100.0


def test_missing_and_unknown_ids_are_named():
    found = evaluate(dataset([["cat"], []], "2.0"), {"q0": "cat", "z": "x"})
    assert (found.missing, found.unknown) == (("q1",), ("z",))
    assert found.metrics["exact"] == 50.0
    odds = {"q0": -1.0, "q1": 9.0}  # the second would be right, but was not predicted
    found = evaluate(dataset([["cat"], []], "2.0"), {"q0": "cat"}, odds)
    assert found.metrics["exact"] == 50.0
    with pytest.raises(DataError, match=r"none of its 2 questions is predicted; .* for z"):
        evaluate(dataset([["cat"], []], "2.0"), {"z": "x"})
    with pytest.raises(DataError, match=r"null odds: 1 questions are missing \(q1\)"):
        evaluate(dataset([["cat"], []], "2.0"), {"q0": "cat"}, {"q0": 1.0})
    with pytest.raises(DataError, match=r"of SQuAD v1\.1, .* null odds go with v2\.0"):
        evaluate(dataset([["cat"]], "1.1"), {"q0": "cat"}, {"q0": 1.0})
    with pytest.raises(DataError, match="null_threshold = nan"):
        evaluate(dataset([[]], "2.0"), {"q0": "cat"}, {"q0": 1.0}, float("nan"))


def test_unlabelled_data_cannot_be_scored():
    data = Dataset("f", "1.1", (Paragraph("", "c"),), (Question("q", "?", 0, (), labelled=False),))
    with pytest.raises(DataError, match="question 'q' has no 'answers'"):
        evaluate(data, {"q": "x"})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1]", r"\[1\], expected an object of question ids and predictions"),
        ('{"q": 1}', "question 'q': 1, expected a text"),
        ('{"q": null}', "question 'q': None, expected a text"),
        ('{"q": ["x"]}', r"question 'q': \['x'\], expected a text"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_files_that_hold_no_predictions_say_so(tmp_path, content, problem):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(DataError, match=problem):
        read_predictions(str(path))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1" + "0" * 400, "true", '"1"', "null"])
def test_null_odds_are_finite_numbers(tmp_path, value):
    path = tmp_path / "odds.json"
    path.write_text(f'{{"q": {value}}}')
    with pytest.raises(DataError, match=r"question 'q': .*, expected a (finite )?number"):
        read_null_odds(str(path))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(json_values)
@settings(max_examples=60, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_any_json_is_a_file_of_predictions_or_a_clear_fault(tmp_path, value):
    path = tmp_path / "any.json"
    path.write_text(json.dumps(value))
    for read, kind in ((read_predictions, str), (read_null_odds, float)):
        try:
            found = read(str(path))
        except DataError as error:
            found, said = {}, str(error)
            assert said.startswith(str(path))
        assert all(type(v) is kind for v in found.values())


@pytest.fixture
def files(tmp_path, write_squad, make_qa):
    data = write_squad(("The tower is in Paris.", [
        make_qa("q0", ("Paris", 16), is_impossible=False),
        make_qa("q1", is_impossible=True),
    ]))  # fmt: skip
    (tmp_path / "p.json").write_text('{"q0": "in Paris", "q1": "", "other": ""}')
    (tmp_path / "odds.json").write_text('{"q0": -2.5, "q1": 3}')
    return data, str(tmp_path / "p.json"), str(tmp_path / "odds.json")


def test_the_verb_prints_and_writes_scores(files, tmp_path, capsys):
    data, predictions, odds = files
    flags = [f"--{n}={tmp_path / f}" for n, f in
             (("json", "s.json"), ("plot", "pr.png"), ("curves", "c.json"))]  # fmt: skip
    assert main(["squad", "evaluate", data, predictions, f"--null-odds={odds}", *flags]) == 0
    shown = capsys.readouterr()
    assert "exact              50.0000\n" in shown.out
    assert "1 predictions are for no question of the data, without effect: other" in shown.err
    scores = json.loads((tmp_path / "s.json").read_text())
    assert scores["f1"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert (scores["version"], scores["missing"], scores["unknown"]) == ("2.0", [], ["other"])
    assert (tmp_path / "pr.png").read_bytes().startswith(b"\x89PNG")
    curves = json.loads((tmp_path / "c.json").read_text())
    assert curves["oracle"] == {"precision": [1.0, 1.0, 0.5], "recall": [0.0, 1.0, 1.0]}
    assert main(["squad", "evaluate", data, predictions, "--json=-"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 2


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--plot=x.png"], "--plot needs --null-odds"),
        (["--null-threshold=0"], "--null-threshold needs --null-odds"),
        (["--squad-version=1.1"], "asked for as SQuAD v1.1, but question 'q0' has 'is_impossible'"),
        (["--null-odds=ODDS", "--plot=x.doc"], "x.doc: not a kind of picture"),
        (["--null-odds=nowhere.json"], "nowhere.json: cannot be read"),
    ],
)
def test_faults_of_the_verb_are_one_line(files, capsys, flags, problem):
    data, predictions, odds = files
    flags = [flag.replace("ODDS", odds) for flag in flags]
    assert main(["squad", "evaluate", data, predictions, *flags]) == 1
    assert problem in capsys.readouterr().err.splitlines()[-1]


def test_pictures_need_matplotlib_and_nothing_else_does(monkeypatch, tmp_path, files):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    data, predictions, odds = files
    assert main(["squad", "evaluate", data, predictions, f"--null-odds={odds}"]) == 0
    with pytest.raises(DataError, match="pip install matplotlib"):
        plot_curves({}, tmp_path / "x.png")
