"""The verbs that need a fine-tuned model, as their users call them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert_lamb.cli import main


@pytest.fixture(scope="module")
def config_file(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "squad.py"
    path.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({settings!r})\n"
    )
    return path


@pytest.fixture(scope="module")
def run(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("cli") / "run"
    args = ["squad", "train", f"--config={config_file}", f"--workdir={workdir}"]
    assert main([*args, "--config.epochs=0.2"]) == 0
    return workdir


def test_train_says_what_it_read_and_resumes(run, config_file, capsys):
    capsys.readouterr()
    args = ["squad", "train", f"--config={config_file}", f"--workdir={run}", "--config.epochs=0.2"]
    assert main(args) == 0
    captured = capsys.readouterr()
    assert "SQuAD v1.1: 1 articles, 160 paragraphs, 160 questions" in captured.out
    assert f"done: checkpoints/, metrics.jsonl are in {run}" in captured.out


def test_another_configuration_in_the_same_folder_is_refused(run, config_file, capsys):
    args = ["squad", "train", f"--config={config_file}", f"--workdir={run}", "--config.epochs=0.2"]
    assert main([*args, "--config.seed=8"]) == 1
    assert "config.seed: 7 -> 8" in capsys.readouterr().err


def test_a_dry_run_reads_everything_and_trains_nothing(config_file, tmp_path, capsys):
    args = ["squad", "train", f"--config={config_file}", f"--workdir={tmp_path / 'no'}"]
    assert main([*args, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "phase 1/1: 10 steps of 16 x 24" in printed
    assert "span/kernel" in printed
    assert not (tmp_path / "no").exists()
    assert main([*args, "--print-config"]) == 0
    assert "--config.answers.n_best=20" in capsys.readouterr().out


def test_predict_writes_the_official_files_and_scores_what_has_answers(run, data, tmp_path, capsys):
    args = ["squad", "predict", data["1.1 dev"], f"--checkpoint={run}", f"--output={tmp_path}"]
    assert main([*args, "--n-best=3"]) == 0
    printed = capsys.readouterr().out
    assert "dev: EM " in printed
    assert "predictions.json" in printed
    best = json.loads((tmp_path / "nbest.json").read_text())
    assert len(best) == 41
    assert max(map(len, best.values())) == 3
    assert main(["squad", "evaluate", data["1.1 dev"], str(tmp_path / "predictions.json")]) == 0
    exact = capsys.readouterr().out.split()[1]
    assert f"EM {float(exact):.2f}" in printed


def test_ask_shows_slices_of_the_text_with_their_places(run, tmp_path, capsys):
    context = "It\u00a0is  print\r\nnot \U0001f600."
    file = tmp_path / "context.txt"
    file.write_bytes(context.encode())
    assert (
        main(["squad", "ask", f"--checkpoint={run}", f"--context={file}", "what ?", "who ?"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("   ")] == ["what ?", "who ?"]
    answers = [line for line in lines if line.startswith("   ")]
    assert len(answers) == 6
    for line in answers:
        _, text, place = line.split(maxsplit=1)[0], *line.strip().split("  ", 1)[1].rsplit("  ", 1)
        start, end = map(int, place.strip("[]").split(":"))
        assert text == repr(context[start:end])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["predict", "{dev}", "--checkpoint={run}", "--output={tmp}", "--batch=0"],
            "--batch=0: exp",
        ),
        (
            ["predict", "{dev}", "--checkpoint={run}", "--output={tmp}", "--n-best=0"],
            "n_best = 0: e",
        ),
        (["predict", "{none}", "--checkpoint={run}", "--output={tmp}"], "none.json"),
        (
            ["predict", "{dev}", "--checkpoint={tmp}", "--output={tmp}"],
            "config.json does not exist",
        ),
        (
            ["predict", "{dev}", "--checkpoint={pretrained}", "--output={tmp}"],
            "run of another task",
        ),
        (["predict", "{v2}", "--checkpoint={run}", "--output={tmp}"], "was fine-tuned on v1.1"),
        (
            ["predict", "{dev}", "--checkpoint={run}", "--output={tmp}", "--null-threshold=1"],
            "--null-threshold: the model is of v1.1",
        ),
        (["predict", "{own}", "--checkpoint={run}", "--output={tmp}"], "is the file that is read"),
        (["ask", "--checkpoint={run}", "--context={dev}", " "], "an empty question"),
        (["ask", "--checkpoint={run}", "--context={none}", "what ?"], "none.json"),
        (["ask", "--checkpoint={run}", "--context={empty}", "what ?"], "no text in it"),
        (["ask", "--checkpoint={run}", "--context={latin}", "what ?"], "byte 1: not UTF-8"),
        (
            ["ask", "--checkpoint={run}", "--context={dev}", "--top=0", "what ?"],
            "--top=0: expected",
        ),
    ],
)
def test_faults_are_one_line(run, data, pretrained, tmp_path, capsys, args, message):
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "predictions.json").write_text(Path(data["1.1 dev"]).read_text())
    (tmp_path / "latin.txt").write_bytes("né".encode("latin-1"))
    names = {
        "run": run, "dev": data["1.1 dev"], "v2": data["2.0 dev"], "pretrained": pretrained,
        "tmp": tmp_path, "none": tmp_path / "none.json", "empty": tmp_path / "empty.txt",
        "latin": tmp_path / "latin.txt", "own": tmp_path / "predictions.json",
    }  # fmt: skip
    assert main(["squad", *(arg.format(**names) for arg in args)]) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
    assert "Traceback" not in "\n".join(error)


def test_fill_mask_and_evaluate_refuse_a_fine_tuned_run(run, capsys):
    assert main(["fill-mask", f"--workdir={run}", "a [MASK] ."]) == 1
    assert "holds a fine-tuned model" in capsys.readouterr().err
