"""The command line end to end, on real files, and what it says to mistakes."""

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from bert_lamb.cli import main
from bert_lamb.config import ConfigError, PretrainConfig, from_dict
from bert_lamb.training.preflight import claim_workdir


@pytest.fixture(scope="module")
def config_file(small: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "small.py"
    path.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({small!r})\n"
    )
    return path


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    """Names of the programs that JAX compiles, as it reports them."""
    names: list[str] = []

    def note(event: str, seconds: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(details["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(note)
    return names


@pytest.fixture(scope="module")
def run(config_file: Path, compiled: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on eight devices."""
    workdir = tmp_path_factory.mktemp("run")
    flags = [
        f"--config={config_file}",
        f"--workdir={workdir}",
        "--config.logging.trust_ratios=True",
    ]
    assert main(["pretrain", *flags]) == 0
    (workdir / "compiled.txt").write_text("\n".join(compiled))
    return workdir


def _score(capsys: pytest.CaptureFixture[str], run: Path, records: Path, *flags: str) -> dict:
    capsys.readouterr()
    code = main(["evaluate", f"--workdir={run}", f"--records={records}", "--json", *flags])
    assert code == 0
    return json.loads(capsys.readouterr().out)


def test_p66_the_same_checkpoint_scores_the_same_and_names_its_step(run, records, capsys):
    first = _score(capsys, run, records[16] / "heldout")
    second = _score(capsys, run, records[16] / "heldout")
    assert first == second
    assert first["step"] == 10
    assert len(first["parameters_hash"]) == 12
    older = _score(capsys, run, records[16] / "heldout", "--step=9")
    assert older["step"] == 9
    assert older["parameters_hash"] != first["parameters_hash"]


def test_p66_a_run_evaluates_before_its_first_step(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (lines[0]["kind"], lines[0]["step"]) == ("eval", 0)
    assert [line["step"] for line in lines if line["kind"] == "eval"] == [0, 6, 6, 10]


def test_p35_p70_every_example_counts_once_whatever_the_batch(run, records, capsys):
    scores = [
        _score(capsys, run, records[16] / "heldout", f"--batch={batch}", "--max-examples=37")
        for batch in (8, 16, 37)
    ]
    for score in scores:
        assert score["examples"] == 37
        assert score["masked_tokens"] == scores[0]["masked_tokens"]
        assert score["mlm_accuracy"] == scores[0]["mlm_accuracy"]
        assert score["mlm_loss"] == pytest.approx(scores[0]["mlm_loss"], rel=1e-6)
        assert score["nsp_loss"] == pytest.approx(scores[0]["nsp_loss"], rel=1e-6)


def test_the_unigram_floor_stands_beside_the_score(run, records, capsys):
    score = _score(capsys, run, records[16] / "heldout", f"--train-records={records[16] / 'train'}")
    assert 0 < score["most_frequent_accuracy"] < 0.3
    assert 0 < score["unigram_loss"] < 7
    assert score["most_frequent_token"].strip()


def test_fill_mask_prints_five_real_tokens(run, capsys):
    assert main(["fill-mask", f"--workdir={run}", "the [MASK] of a [MASK] ."]) == 0
    sentence, *masks = capsys.readouterr().out.splitlines()
    assert sentence == "the [MASK] of a [MASK] ."
    vocabulary = set((run / "vocab.txt").read_text(encoding="utf-8").split("\n"))
    for line in masks:
        words = line.split()
        assert len(words) == 10
        assert set(words[::2]) <= vocabulary
    assert len(masks) == 2


@pytest.mark.parametrize("arguments", [["--top=0", "a [MASK] ."], ["no mask"], ["[MASK] " * 50]])
def test_fill_mask_refuses_what_it_cannot_fill(run, capsys, arguments):
    assert main(["fill-mask", f"--workdir={run}", *arguments]) == 1
    assert "bert-lamb: " in capsys.readouterr().err


def test_inspect_points_to_the_newest_checkpoint_of_a_run(run, capsys):
    assert main(["inspect", str(run)]) == 1
    assert f"did you mean {run / 'checkpoints' / '10'}?" in capsys.readouterr().err


def test_data_verbs_never_replace_what_they_did_not_make(prose, tmp_path, capsys):
    source, vocab, out = f"--source={prose}", tmp_path / "vocab", tmp_path / "records"
    learn = ["data", "vocab", source, "--size=200", f"--output={vocab}"]
    build = ["data", "build", source, f"--vocab={vocab}", "--seq-length=16", f"--output={out}",
             "--workers=1", "--shards=1"]  # fmt: skip
    assert [main(learn), main(learn), main([*learn, "--overwrite"])] == [0, 1, 0]
    assert [main(build), main(build), main([*build, "--overwrite"])] == [0, 1, 0]
    (out / "NOTES").write_text("mine")
    capsys.readouterr()
    assert main([*build, "--overwrite"]) == 1
    assert "NOTES" in capsys.readouterr().err
    assert (out / "NOTES").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    assert main([*learn[:-1], f"--output={tmp_path / 'file' / 'x'}"]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_one_compile_per_phase(run):
    names = (run / "compiled.txt").read_text().splitlines()
    assert names.count("jit(step)") == 2
    assert names.count("jit(sums)") == 2  # the evaluation, one for each sequence length


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config=nope.py"], "--config=nope.py: no such file"),
        (
            ["{config}", "--config.optimizer.weight_dekay=0.02"],
            "unknown key weight_dekay; did you mean weight_decay?",
        ),
        (["{config}", "--config.phases[0].steps=x"], "phases[0].steps"),
        (["{config}", "--config.phases[2].steps=1"], "index 2, expected [0] to [1]"),
        (["{config}", "--config.phases=1"], "only single values can be set here"),
        (["{config}", "--config.phases[0].seq_length=32"], "records were made for 16"),
        (["{config}", "--config.phases[0].records=/nowhere"], "/nowhere"),
        (["{config}", "--config.model.vocab_size=50"], "vocab_size = 50"),
        (["{config}", "--config.phases[0].global_batch=12"], "multiple of the 8 devices"),
        (["{config}", "--colour=red"], "--colour=red"),
        (["{config}", "--config.init_from=/nowhere"], "/nowhere"),
    ],
)
def test_p14_p15_mistakes_are_one_message_before_anything_is_compiled(
    config_file, tmp_path, capsys, arguments, message
):
    filled = [a.replace("{config}", f"--config={config_file}") for a in arguments]
    code = main(["pretrain", *filled, f"--workdir={tmp_path / 'work'}"])
    assert code == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("x = 1", "the file defines no get_config()"),
        ("def get_config(): return [1]", "get_config() returned list"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_config_file_that_fails_is_named(tmp_path, capsys, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert main(["pretrain", f"--config={path}", f"--workdir={tmp_path / 'work'}"]) == 1
    error = capsys.readouterr().err
    assert f"--config={path}: " in error
    assert message in error


@pytest.mark.parametrize(
    ("content", "message"), [("{", "not JSON"), ("[]", "not the configuration of a run")]
)
def test_a_damaged_config_json_is_named(config_file, tmp_path, capsys, content, message):
    (tmp_path / "config.json").write_text(content)
    for command in (["pretrain", f"--config={config_file}"], ["fill-mask", "a [MASK] ."]):
        assert main([*command, f"--workdir={tmp_path}"]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert str(tmp_path / "config.json") in error


def test_p51_p58_a_run_whose_gradients_explode_stops_and_names_the_tensor(
    config_file, tmp_path, capsys
):
    code = main(
        ["pretrain", f"--config={config_file}", f"--workdir={tmp_path}",
         "--config.phases[0].peak_lr=1e38"]
    )  # fmt: skip
    assert code == 1
    error = capsys.readouterr().err
    assert "gradients were not finite in 1 updates in a row, first in tensor " in error
    assert "/" in error.split("first in tensor ")[1].split(";")[0]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["skipped_total"] >= 1


def test_a_dry_run_refuses_the_folder_of_another_run(config_file, run, capsys):
    args = ["pretrain", f"--config={config_file}", f"--workdir={run}", "--dry-run"]
    assert main(args) == 0
    capsys.readouterr()
    assert main([*args, "--config.seed=99"]) == 1
    assert "-> 99" in capsys.readouterr().err


def test_dry_run_prints_rates_and_what_decays_and_adapts(config_file, tmp_path, capsys):
    workdir = tmp_path / "unused"
    assert main(
        ["pretrain", f"--config={config_file}", f"--workdir={workdir}", "--dry-run"]
    ) == 0  # fmt: skip
    out = capsys.readouterr().out
    assert "learning rate first 0.005, peak 0.01, last 0.002" in out
    assert "layers/attention/query/kernel" in out
    assert not workdir.exists()


def test_weights_of_another_run_can_be_the_start(config_file, run, tmp_path, capsys):
    code = main(
        ["pretrain", f"--config={config_file}", f"--workdir={tmp_path}",
         f"--config.init_from={run / 'checkpoints' / '10'}"]
    )  # fmt: skip
    assert code == 0
    assert main(["inspect", str(tmp_path / "checkpoints" / "10")]) == 0
    assert "optimizer state" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--config.phases[0].steps=abc", "a whole number"),
        ("--config.phases[0].steps=2.5", "a whole number"),
        ("--config.optimizer.weight_decay=x", "a number"),
        ("--config.logging.tensorboard=maybe", "True or False"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_line(config_file, tmp_path, capsys, flag, expected):
    flags = [f"--config={config_file}", f"--workdir={tmp_path}", "--config.seed=1", flag]
    assert main(["pretrain", *flags]) == 1
    assert capsys.readouterr().err == f"bert-lamb: {flag}: expected {expected}\n"


def test_an_empty_workdir_is_not_the_present_folder(config_file, capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", f"--config={config_file}", "--workdir="])
    assert "empty; expected the path of a folder" in capsys.readouterr().err


def test_an_output_that_cannot_be_made_is_named(prose, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    output = tmp_path / "file" / "vocab"
    assert main(["data", "vocab", "--source", str(prose), "--output", str(output)]) == 1
    assert f"{output}: Not a directory; check this path" in capsys.readouterr().err


def test_trust_ratios_of_every_layer_are_written_and_plotted(run, tmp_path):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ratios = [line for line in lines if line["kind"] == "trust_ratio"]
    assert [r["step"] for r in ratios] == [r["step"] for r in lines if r["kind"] == "train"]
    assert all(len(r["layers/attention/query/kernel"]) == 2 for r in ratios)
    assert all(r["layers/attention/query/bias"] == [1.0, 1.0] for r in ratios)
    assert all(0 < r["embeddings/word/embedding"][0] != 1 for r in ratios)
    script = Path(__file__).resolve().parents[2] / "scripts" / "plot_trust_ratios.py"
    picture = tmp_path / "ratios.png"
    command = [sys.executable, script, run / "metrics.jsonl", picture]
    subprocess.run(command, check=True)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "verb", ["", "data", "data vocab", "data build", "pretrain", "evaluate", "fill-mask", "inspect"]
)
def test_every_verb_has_help_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*verb.split(), "--help"])
    assert stopped.value.code == 0
    assert "usage: bert-lamb" in capsys.readouterr().out


def test_help_loads_no_heavy_package():
    code = (
        "import sys, bert_lamb.cli\n"
        "try: bert_lamb.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('jax', 'numpy', 'flax', 'orbax', 'rich') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "[]"


def test_printed_config_sets_itself(config_file, tmp_path, capsys):
    flags = ["--config.seed=7", "--config.phases[1].peak_lr=0.125"]
    common = ["pretrain", f"--config={config_file}", f"--workdir={tmp_path}", "--print-config"]
    assert main([*common, *flags]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert set(flags) <= set(printed)
    settable = [word for line in printed if line[0] == "-" for word in shlex.split(line)]
    assert main([*common, *settable]) == 0
    assert capsys.readouterr().out.splitlines() == printed


def no_tokenizer(workdir):
    """Writes nothing: for these tests the configuration is all that counts."""


def test_a_config_can_be_corrected_until_something_is_saved(records, tmp_path):
    config = from_dict(PretrainConfig, {"phases": [{"records": str(records[16] / "train")}]})
    other = dataclasses.replace(config, seed=1)
    claim_workdir(tmp_path, config, no_tokenizer)
    claim_workdir(tmp_path, other, no_tokenizer)
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 1
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"config\.seed: 1 -> 0"):
        claim_workdir(tmp_path, config, no_tokenizer)


def test_keys_that_an_older_version_did_not_know_do_not_differ(records, tmp_path):
    config = from_dict(PretrainConfig, {"phases": [{"records": str(records[16] / "train")}]})
    claim_workdir(tmp_path, config, no_tokenizer)
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    del values["masking"]["whole_word"], values["data"]
    file.write_text(json.dumps(values))
    claim_workdir(tmp_path, config, no_tokenizer)
    assert json.loads(file.read_text())["masking"]["whole_word"] is False
