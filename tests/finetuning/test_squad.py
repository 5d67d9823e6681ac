"""Fine-tuning on SQuAD through the one trainer: it learns, resumes and does not know devices."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_lamb.config import ConfigError, ParallelConfig
from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import TextOptions, WordPiece, load_tokenizer
from bert_lamb.finetuning import squad
from bert_lamb.finetuning.config import SquadConfig
from bert_lamb.finetuning.forward import build_forward
from bert_lamb.finetuning.pretrained import open_pretrained
from bert_lamb.finetuning.runs import split_checkpoint
from bert_lamb.finetuning.tuned import open_tuned
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.squad.reading import read_dataset
from bert_lamb.training.checkpoint import CheckpointError
from bert_lamb.training.start import lay_out
from tests.conftest import CACHE
from tests.finetuning.conftest import squad_config

KILLED_RUN = Path(__file__).parents[1] / "training" / "killed_run.py"


@pytest.fixture(scope="module")
def learned(settings, tmp_path_factory) -> Path:
    """A run long enough to find the word behind "is"."""
    workdir = tmp_path_factory.mktemp("learned")
    no_dropout = settings["model"] | {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    config = squad_config(settings, epochs=30.0, model=no_dropout, checkpoint={"every_steps": 1000})
    squad.finetune(config, workdir, jax.devices()[:1])
    return workdir


def scores(workdir: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "eval"]


def test_a_model_learns_to_answer_questions_it_never_saw(learned, data):
    first, last = scores(learned)
    assert first["exact_match"] < 50
    assert last["exact_match"] > 90
    tuned = open_tuned(str(learned), SquadConfig)
    dataset = read_dataset(data["1.1 dev"])
    found = squad.predict_dataset(tuned, dataset, tuned.config.answers, batch=7)
    assert squad.score(dataset, found, 0.0).to_dict() == {
        name: last[name] for name in ("exact_match", "f1", "total")
    }
    written = json.loads((learned / "dev" / "predictions.json").read_text())
    assert written == {prediction.id: prediction.text for prediction in found}
    (answer,) = squad.ask(tuned, "of the and is lambda not", ["what ?"])
    assert answer.text == "lambda"


def test_a_checkpoint_is_named_by_its_run_or_by_its_step(learned):
    tuned = open_tuned(str(learned / "checkpoints" / "300"), SquadConfig)
    assert tuned.step == 300
    assert split_checkpoint(str(learned)) == (learned, None)
    with pytest.raises(CheckpointError, match="no checkpoint of step 299; found"):
        open_tuned(str(learned / "checkpoints" / "299"), SquadConfig)


def test_v2_learns_to_give_no_answer_and_finds_the_best_threshold(settings, data, tmp_path):
    config = squad_config(
        settings, train=data["2.0 train"], dev=data["2.0 dev"], version="2.0", epochs=25.0,
        model=settings["model"] | {"hidden_dropout": 0.0, "attention_dropout": 0.0},
        checkpoint={"every_steps": 1000},
    )  # fmt: skip
    squad.finetune(config, tmp_path, jax.devices()[:1])
    last = scores(tmp_path)[-1]
    assert last["NoAns_total"] == 14
    assert last["best_f1"] >= last["f1"] > 80
    odds = json.loads((tmp_path / "dev" / "null_odds.json").read_text())
    answers = json.loads((tmp_path / "dev" / "predictions.json").read_text())
    assert {id for id, text in answers.items() if not text} == {
        id for id, value in odds.items() if value > 0
    }


def test_encoder_is_the_checkpoints_and_head_is_drawn(settings, pretrained, tmp_path):
    task, lines = squad.prepare(squad_config(settings), tmp_path)
    assert any("160 of 160 answers (100.000%)" in line for line in lines)
    layout = lay_out(task.objective, make_mesh(ParallelConfig(), jax.devices()[:1]))
    params, origin = task.weights(layout)
    assert "weights of embeddings, layers from step 2" in origin
    assert "drawn: span" in origin
    theirs, _ = open_pretrained(str(pretrained)).read(layout)
    for part in ("embeddings", "layers"):
        jax.tree.map(np.testing.assert_array_equal, params[part], theirs[part])
    assert set(params) == {"embeddings", "layers", "span"}
    assert np.std(np.asarray(params["span"]["kernel"])) > 0.01


def test_scores_and_updates_do_not_know_the_mesh(settings, tmp_path):
    found = []
    for name, devices, parallel in (("one", 1, {}), ("eight", 8, {"fsdp": 2, "tensor": 2})):
        # A shift of all logits changes no loss: the gradient of the head's bias is rounding alone,
        # which a small eps would let AdamW blow up.
        optimizer = settings["optimizer"] | {"eps": 1e-3}
        config = squad_config(settings, epochs=0.3, parallel=parallel, optimizer=optimizer)
        squad.finetune(config, tmp_path / name, jax.devices()[:devices])
        tuned = open_tuned(str(tmp_path / name), SquadConfig)
        found.append((scores(tmp_path / name)[-1], jax.tree.map(np.asarray, tuned.params)))
    (one, params), (eight, others) = found
    assert one == eight
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), params, others
    )


def test_logits_of_8_devices_are_those_of_one(settings, tmp_path):
    task, _ = squad.prepare(squad_config(settings), tmp_path)
    batch = task.rows(task.examples[:16])
    outputs = []
    for devices, parallel in ((1, ParallelConfig()), (8, ParallelConfig(fsdp=4))):
        layout = lay_out(task.objective, make_mesh(parallel, jax.devices()[:devices]))
        params, _ = task.weights(layout)
        outputs.append(build_forward(task.objective, layout)(params, batch))
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-6)


@pytest.mark.slow
def test_a_run_killed_and_restarted_is_bit_equal_to_one_that_never_stopped(settings, tmp_path):
    config = tmp_path / "config.py"
    config.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({settings!r})\n"
    )
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }

    def run(workdir: Path, *program: str) -> int:
        return subprocess.run(
            [sys.executable, *program, "squad", "train", f"--config={config}",
             f"--workdir={workdir}", "--config.epochs=0.6"],
            env=environment, timeout=300, check=False,
        ).returncode  # fmt: skip

    assert run(tmp_path / "straight", "-m", "bert_lamb.cli") == 0
    assert run(tmp_path / "killed", str(KILLED_RUN), "SIGKILL", "3") == -9
    assert run(tmp_path / "killed", "-m", "bert_lamb.cli") == 0
    straight, killed = (
        open_tuned(str(tmp_path / name), SquadConfig) for name in ("straight", "killed")
    )
    assert straight.step == killed.step == 6
    jax.tree.map(np.testing.assert_array_equal, straight.params, killed.params)


def test_scores_that_a_kill_prevented_are_made_up_for(learned, settings, tmp_path):
    workdir = tmp_path / "run"
    config = squad_config(settings, epochs=0.1)
    squad.finetune(config, workdir, jax.devices()[:1])
    expected = (workdir / "dev" / "predictions.json").read_bytes()
    log, last = workdir / "metrics.jsonl", scores(workdir)[-1]
    lines = log.read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line) | {"at": 0} != last | {"at": 0}]
    assert len(kept) < len(lines)
    log.write_text("".join(kept))
    (workdir / "dev" / "predictions.json").unlink()
    squad.finetune(config, workdir, jax.devices()[:1])
    assert (workdir / "dev" / "predictions.json").read_bytes() == expected
    assert scores(workdir)[-1] == last
    (workdir / "dev" / "predictions.json").unlink()
    squad.finetune(config, workdir, jax.devices()[:1])  # nothing is left to do
    assert not (workdir / "dev" / "predictions.json").exists()


def test_a_tokenizer_that_changed_is_refused_and_not_copied_over_the_first(
    settings, learned, tmp_path
):
    workdir, vocab = tmp_path / "run", tmp_path / "vocab"
    tokenizer = load_tokenizer(learned)
    tokens = [tokenizer.token(i) for i in range(tokenizer.vocab_size)]
    WordPiece(tokens, TextOptions()).save(vocab)
    shape = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16}
    config = squad_config(
        settings, init_from="", vocab=str(vocab), model=shape | {"scan_layers": True}, epochs=0.1,
        dev="",
    )  # fmt: skip
    squad.finetune(config, workdir, jax.devices()[:1])
    first = load_tokenizer(workdir).hash
    WordPiece([*tokens[:-2], tokens[-1], tokens[-2]], TextOptions()).save(vocab)
    with pytest.raises(CheckpointError, match=r"records = .*tokenizer.*this run expects"):
        squad.finetune(config, workdir, jax.devices()[:1])
    assert load_tokenizer(workdir).hash == first
    load_tokenizer(vocab).save(workdir)
    with pytest.raises(
        ConfigError, match=r"the tokenizer there, .*, is not that of the checkpoint"
    ):
        open_tuned(str(workdir), SquadConfig)


def test_a_configuration_that_is_gone_or_edited_is_refused(settings, learned, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(learned, copy)
    file = copy / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"version": "2.0"}))
    with pytest.raises(ConfigError, match=r"was changed .*config\.version: 1\.1 -> 2\.0"):
        open_tuned(str(copy), SquadConfig)
    file.write_text(json.dumps(values | {"epohcs": 1}))
    with pytest.raises(ConfigError, match=r"run/config\.json: config\.epohcs"):
        open_tuned(str(copy), SquadConfig)
    file.unlink()
    with pytest.raises(ConfigError, match=r"has checkpoints, but its config\.json is missing"):
        squad.finetune(squad_config(settings), copy, jax.devices()[:1])
    assert not file.exists()


def test_a_folder_of_another_program_is_not_overwritten(settings, tmp_path):
    content = '{"model_type": "bert"}'
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="holds a model in Hugging Face's form, not a run"):
        squad.finetune(squad_config(settings), tmp_path, jax.devices()[:1])
    assert (tmp_path / "config.json").read_text() == content


def test_p84_data_of_another_version_are_refused_before_anything_is_compiled(settings, data):
    for version, other in (("1.1", "2.0"), ("2.0", "1.1")):
        config = squad_config(settings, version=version, train=data[f"{other} train"])
        with pytest.raises(
            DataError, match=f"asked for as SQuAD v{version}, but .* as in v{other}"
        ):
            squad.prepare(config, "unused")


def test_p84_a_model_of_one_version_refuses_data_of_the_other(learned, data):
    tuned = open_tuned(str(learned), SquadConfig)
    with pytest.raises(ConfigError, match=r"is SQuAD v2\.0, but the model was fine-tuned on v1\.1"):
        squad.predict_dataset(tuned, read_dataset(data["2.0 dev"]), tuned.config.answers, 8)


def test_p89_the_tokenizer_is_that_of_the_checkpoint(settings, pretrained, tmp_path):
    for key, value in (("vocab", "vocab.txt"), ("cased", True)):
        with pytest.raises(
            ConfigError, match=f"{key} = .*: expected .*, since init_from has a tok"
        ):
            squad_config(settings, **{key: value})
    task, _ = squad.prepare(squad_config(settings), tmp_path)
    task.write_tokenizer(tmp_path)
    saved = open_pretrained(str(pretrained)).tokenizer
    assert task.start.tokenizer.hash == saved.hash
    assert (tmp_path / "tokenizer.json").exists()


def test_the_shape_comes_from_the_checkpoint_and_may_not_be_another(settings):
    task, _ = squad.prepare(squad_config(settings), "unused")
    assert (task.config.model.hidden_size, task.config.model.vocab_multiple) == (16, 8)
    assert task.config.model.hidden_dropout == 0.1
    wrong = squad_config(settings, model={"hidden_size": 32, "num_heads": 2})
    with pytest.raises(ConfigError, match=r"config\.model\.hidden_size = 32: expected 16, that of"):
        squad.prepare(wrong, "unused")
    long = {"seq_length": 64, "max_query": 4, "stride": 8}
    with pytest.raises(
        ConfigError, match=r"config\.features\.seq_length = 64: expected at most 32"
    ):
        squad.prepare(squad_config(settings, features=long), "unused")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_from": ""}, "vocab = '': expected a tokenizer, since init_from is ''"),
        ({"train": ""}, "train = '': expected a SQuAD file"),
        ({"epochs": 0.0}, r"config\.epochs = 0\.0: expected more than 0"),
        ({"epohcs": 1.0}, r"config\.epohcs = 1\.0: unknown key; did you mean config\.epochs"),
        ({"epochs": 1e300}, r"epochs = 1e\+300: expected fewer than 2\*\*31 updates"),
        ({"global_batch": 0}, "global_batch = 0: expected at least 1"),
        ({"peak_lr": -1.0}, r"peak_lr = -1\.0: expected more than 0"),
        ({"warmup_share": 1.5}, r"warmup_share = 1\.5: expected a share"),
        ({"features": {"seq_length": 64}}, r"config\.features\.stride 128 > room -3"),
        ({"answers": {"n_best": 0}}, r"config\.answers\.n_best = 0: expected at least 1"),
        ({"version": "3.0"}, r"config\.version = '3\.0': expected one of '1\.1', '2\.0'"),
    ],
)
def test_p80_faulty_configurations_are_refused_by_key(settings, changes, message):
    with pytest.raises(ConfigError, match=message):
        squad_config(settings, **changes)


def test_weights_come_from_a_run_and_from_nowhere_else(settings, tmp_path):
    with pytest.raises(
        ConfigError, match=r"init_from = '.*': there is no config\.json in .*; expec"
    ):
        squad.prepare(squad_config(settings, init_from=str(tmp_path)), "unused")
    (tmp_path / "config.json").write_text('{"model": {}}')
    with pytest.raises(ConfigError, match="not the configuration of a run of this version"):
        squad.prepare(squad_config(settings, init_from=str(tmp_path)), "unused")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json: not JSON"):
        squad.prepare(squad_config(settings, init_from=str(tmp_path)), "unused")


def test_another_fine_tuning_starts_from_the_first_with_its_head(settings, learned):
    task, _ = squad.prepare(squad_config(settings, init_from=str(learned)), "unused")
    layout = lay_out(task.objective, make_mesh(ParallelConfig(), jax.devices()[:1]))
    params, origin = task.weights(layout)
    assert "weights of embeddings, layers, span from step 300" in origin
    tuned = open_tuned(str(learned), SquadConfig)
    jax.tree.map(np.testing.assert_array_equal, params, tuned.params)


def test_unlabelled_data_can_be_predicted_but_not_learned_from(settings, learned, tmp_path):
    content = json.loads(Path(settings["dev"]).read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        for qa in paragraph["qas"]:
            del qa["answers"]
    file = tmp_path / "unlabelled.json"
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="has no 'answers'; a data set with answers is needed here"):
        squad.prepare(squad_config(settings, train=str(file)), "unused")
    tuned = open_tuned(str(learned), SquadConfig)
    found = squad.predict_dataset(tuned, read_dataset(str(file)), tuned.config.answers, 8)
    assert len(found) == 41


def test_first_examples_alone_are_scored_if_so_asked(settings, tmp_path):
    config = squad_config(settings, evaluation={"batch": 16, "max_examples": 5})
    task, lines = squad.prepare(config, tmp_path)
    assert len(task.evaluate.dataset.questions) == 5
    assert any("5 questions" in line for line in lines)
    assert dataclasses.replace(task.config, model=config.model) == config
