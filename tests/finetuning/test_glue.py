"""Fine-tuning on tables of texts: classes, numbers, tables of one's own, and the files of GLUE."""

import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_lamb.cli import main
from bert_lamb.config import ConfigError, from_dict
from bert_lamb.data.errors import DataError
from bert_lamb.finetuning import glue
from bert_lamb.finetuning.config import GlueConfig, SquadConfig
from bert_lamb.finetuning.tuned import open_tuned

WORDS = ["the", "a", "in", "of", "and", "to", "it"]


def rows(number: int, seed: int) -> list[tuple[str, int]]:
    """Sentences that are of class 1 if the word class is in them."""
    rng = random.Random(seed)
    made = []
    for n in range(number):
        words = rng.choices(WORDS, k=5)
        words[rng.randrange(5)] = "class" if n % 2 else "object"
        made.append((" ".join(words), n % 2))
    return made


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for split, number, seed in (("train", 160, 1), ("dev", 40, 2)):
        lines = [f"{text}\t{label}" for text, label in rows(number, seed)]
        (folder / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
        found[split] = str(folder / f"{split}.tsv")
    lines = [f"{text}\t{4.0 * label}" for text, label in rows(160, 3)]
    (folder / "numbers.tsv").write_text("\n".join(["text\tgrade", *lines, ""]))
    (folder / "unlabelled.tsv").write_text("index\tsentence\n7\tthe class in\n9\tthe object in\n")
    return found | {name: str(folder / f"{name}.tsv") for name in ("numbers", "unlabelled")}


@pytest.fixture(scope="module")
def values(settings: dict[str, Any], tables: dict[str, str]) -> dict[str, Any]:
    shared = ("init_from", "seed", "global_batch", "optimizer", "evaluation", "logging")
    model = settings["model"] | {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    return {name: settings[name] for name in shared} | {
        "task": "SST-2", "train": tables["train"], "dev": tables["dev"], "model": model,
        "features": {"seq_length": 16}, "epochs": 12.0, "peak_lr": 5e-3,
        "checkpoint": {"every_steps": 1000, "keep": 1},
    }  # fmt: skip


@pytest.fixture(scope="module")
def learned(values, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("glue")
    config = from_dict(GlueConfig, values)
    glue.finetune(config, workdir, jax.devices()[:1])
    return workdir


def test_a_classifier_learns_predicts_and_is_scored(learned, tables, tmp_path, capsys):
    out = tmp_path / "SST-2.tsv"
    assert (
        main(["glue", "predict", tables["dev"], f"--checkpoint={learned}", f"--output={out}"]) == 0
    )
    printed = capsys.readouterr().out
    assert "dev: accuracy 1.0000" in printed
    assert "SST-2: 40 examples of one text" in printed
    assert out.read_text().splitlines()[:3] == ["index\tprediction", "0\t0", "1\t1"]
    assert main(["glue", "evaluate", "sst2", tables["dev"], str(out)]) == 0
    assert capsys.readouterr().out.split() == ["accuracy", "1.0000"]


def test_files_without_labels_are_predicted(learned, tables, tmp_path, capsys):
    out = tmp_path / "SST-2.tsv"
    args = ["glue", "predict", tables["unlabelled"], f"--checkpoint={learned}", f"--output={out}"]
    assert main(args) == 0
    assert "accuracy" not in capsys.readouterr().out
    assert out.read_text() == "index\tprediction\n7\t1\n9\t0\n"


def test_a_table_of_ones_own_with_numbers_is_a_regression(values, tables, tmp_path):
    own = {
        "task": "grades", "text_columns": ("text",), "label_column": "grade", "regression": True,
        "train": tables["numbers"], "dev": tables["numbers"], "epochs": 20.0,
    }  # fmt: skip
    own_dev = tmp_path / "dev.tsv"
    own_dev.write_text("text\tgrade\nthe class in\t4\na object\t0\nit class\t3.5\n")
    config = from_dict(GlueConfig, values | own | {"dev": str(own_dev)})
    glue.finetune(config, tmp_path / "run", jax.devices()[:1])
    tuned = open_tuned(str(tmp_path / "run"), GlueConfig)
    found = glue.predict_dataset(tuned, glue.read_dataset(str(own_dev), glue.task_of(config)), 4)
    np.testing.assert_allclose(found, [4, 0, 4], atol=1.0)


def test_labels_of_a_table_of_ones_own_are_kept_with_the_run(values, tmp_path):
    file = tmp_path / "table.tsv"
    file.write_text("text\tmood\n" + "the class\tgood\nthe object\tbad\nof it\tso-so\n" * 8)
    own = {"task": "moods", "text_columns": ["text"], "label_column": "mood", "dev": ""}
    task, lines = glue.prepare(from_dict(GlueConfig, values | own | {"train": str(file)}))
    assert task.config.labels == ("bad", "good", "so-so")
    assert task.evaluate is None
    assert any("bad 8 (33.3%)" in line for line in lines)
    assert task.objective.init(jax.random.key(0))["classifier"]["bias"].shape == (3,)


def test_a_dev_set_inside_of_the_training_file_is_taken_out_of_it(values, tables):
    both = Path(tables["train"]).parent / "both.tsv"
    both.write_text(
        Path(tables["train"]).read_text() + Path(tables["dev"]).read_text().split("\n", 1)[1]
    )
    task, lines = glue.prepare(from_dict(GlueConfig, values | {"train": str(both)}))
    assert any("left out that are also in another set" in line for line in lines)
    dev = {tuple(row) for row in task.evaluate.features.rows(range(40))["input_ids"].tolist()}
    train = {tuple(row) for row in task.rows(task.examples)["input_ids"].tolist()}
    assert not dev & train


def test_first_examples_alone_are_scored_if_so_asked(values):
    options = values["evaluation"] | {"max_examples": 3}
    task, _ = glue.prepare(from_dict(GlueConfig, values | {"evaluation": options}))
    assert len(task.evaluate.features) == 3
    assert len(task.examples) == 160


def test_a_table_is_not_overwritten_by_its_predictions(learned, tables, capsys):
    before = Path(tables["dev"]).read_bytes()
    args = ["glue", "predict", tables["dev"], f"--checkpoint={learned}"]
    assert main([*args, f"--output={tables['dev']}"]) == 1
    assert "is the file that is read; name another one" in capsys.readouterr().err
    assert main([*args, f"--output={Path(tables['dev']).parent}"]) == 1
    assert "is a folder; expected the name of a file" in capsys.readouterr().err
    assert Path(tables["dev"]).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"task": ""}, ConfigError, "task = '': expected the name of a task"),
        ({"task": "SST-3"}, DataError, "task 'SST-3': expected one of CoLA, "),
        ({"label_column": "x"}, ConfigError, "label_column = 'x': expected left out, since text"),
        ({"text_columns": ["a"]}, ConfigError, "label_column = '': expected the header name"),
        ({"train": "no.tsv"}, DataError, r"no\.tsv"),
        (
            {"features": {"seq_length": 64}},
            ConfigError,
            r"config\.features\.seq_length = 64: expect",
        ),
    ],
)
def test_faulty_configurations_are_refused(values, changes, error, message):
    with pytest.raises(error, match=message):
        glue.prepare(from_dict(GlueConfig, values | changes))


def test_a_run_of_another_task_is_refused_with_the_way_on(learned, pretrained):
    with pytest.raises(ConfigError, match=r"holds a run of another task; .*bert-lamb squad train"):
        open_tuned(str(learned), SquadConfig)
    with pytest.raises(ConfigError, match=r"holds a run of another task; .*bert-lamb glue train"):
        open_tuned(str(pretrained), GlueConfig)


def test_real_mrpc_is_read_from_the_published_files(values, shared):
    folder = shared / "data" / "glue" / "MRPC"
    config = from_dict(GlueConfig, values | {
        "task": "MRPC", "train": str(folder / "msr_paraphrase_train.txt"),
        "dev": str(folder / "dev.tsv"), "features": {"seq_length": 32}, "epochs": 0.01,
    })  # fmt: skip
    task, lines = glue.prepare(config)
    assert len(task.examples) == 3668
    assert any("408 examples left out that are also in another set" in line for line in lines)
