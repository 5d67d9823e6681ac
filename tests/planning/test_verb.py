"""`bert-lamb plan` end to end: tables, files, comparisons, and what it says to mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bert_lamb.cli import main
from bert_lamb.cli.sweeps import expand_phases, parse_sweep, settings_of
from bert_lamb.config import ConfigError
from tests.planning.programs import needs_libtpu

VALUES: dict[str, Any] = {
    "model": {
        "num_layers": 2, "hidden_size": 128, "num_heads": 2, "intermediate_size": 256,
        "max_positions": 128, "dtype": "bfloat16", "dropout_rng": "rbg", "scan_layers": True,
    },
    "phases": [
        {"seq_length": 128, "global_batch": 64, "steps": 100, "max_predictions": 20,
         "peak_lr": 1e-2, "warmup_steps": 10},
    ],
    "evaluation": {"batch": 64},
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.py"
    path.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({VALUES!r})\n"
    )
    return path


def _cells(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.strip().startswith(name))
    return line.split()[len(name.split()) :]


def test_without_a_topology_the_run_itself_is_planned(config, capsys, tmp_path):
    out = tmp_path / "plan.json"
    assert main(["plan", f"--config={config}", f"--json={out}"]) == 0
    text = capsys.readouterr().out
    assert "vocabulary 30,522 (assumed, that of Google's uncased BERT" in text
    assert _cells(text, "steps") == ["100"]
    assert _cells(text, "epochs of the records") == ["n/a"]
    assert _cells(text, "learning rate, peak") == ["0.01"]
    plan = json.loads(out.read_text())
    assert plan["vocabulary"] == 30522
    assert plan["phases"][0]["tokens"] == 100 * 64 * 128
    assert plan["phases"][0]["fit"] is None
    assert plan["machine"] is None


def test_records_give_vocabulary_and_epochs(config, records, capsys):
    manifest = json.loads((records[16] / "train" / "manifest.json").read_text())
    keys = {"records": records[16] / "train", "seq_length": 16, "max_predictions": 3}
    flags = [f"--config.phases[0].{key}={value}" for key, value in keys.items()]
    assert main(["plan", f"--config={config}", *flags]) == 0
    text = capsys.readouterr().out
    assert f"vocabulary {manifest['vocab_size']:,} (the records " in text
    assert _cells(text, "epochs of the records") == [f"{100 * 64 / manifest['num_examples']:.2f}"]
    assert main(["plan", f"--config={config}", *flags, "--vocab-size=9"]) == 2
    assert f"--vocab-size=9: expected {manifest['vocab_size']}" in capsys.readouterr().err


def test_settings_are_compared_without_a_topology_too(config, capsys):
    sweep = "config.phases[*].global_batch=64,128"
    assert main(["plan", f"--config={config}", "--sweep", sweep]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["topology", "phases[*].global_batch"]
    assert [line.split()[:2] for line in lines[1:]] == [["-", "64"], ["-", "128"]]


NOTHING_HEAVY = """
import sys
from bert_lamb.cli import main
assert main(["plan", "--config={config}"]) == 0
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
assert "libtpu" not in maps, "libtpu was loaded"
assert "libtpu" not in sys.modules
assert "matplotlib" not in sys.modules
"""


def test_a_plan_without_a_topology_loads_neither_libtpu_nor_matplotlib(config):
    environment = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS"}
    code = NOTHING_HEAVY.format(config=config)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--topology=v9:2x2"], "topology 'v9:2x2': unknown generation 'v9'; expected one of v2"),
        (["--topology=v3:64x64"], "the largest slice of v3 has 1024 chips"),
        (["--topology=v3"], "expected GENERATION:SHAPE"),
        (["--config.model.num_layer=3"], "unknown key num_layer; did you mean num_layers?"),
        (["--sweep", "config.model.remats=none,full"], "did you mean remat?"),
        (["--sweep", "config.model.remat=none,all"], "expected one of 'none', 'dots', 'full'"),
        (["--sweep", "model.remat=none"], "expected config.KEY=V1,V2"),
        (["--sweep", "config.model.remat=none,none"], "each value once"),
        (["--price-per-chip-hour=-1"], "--price-per-chip-hour=-1: expected a number of at least 0"),
        (["--price-per-chip-hour=nan"], "--price-per-chip-hour=nan: expected a number"),
        (["--utilization=1.5"], "--utilization=1.5: expected a number of more than 0 and at most"),
        (["--kappa=0"], "--kappa=0: expected a number of more than 0"),
        (["--vocab-size=0"], "--vocab-size=0: expected a number of at least 1"),
        (["--plot=a.png"], "no time to draw without --topology"),
        (["--plot=a.txt", "--topology=v3:2x2"], "ends in .png, .svg or .pdf"),
        (["--plot=a.png", "--topology=v5e:2x2"], "no time is predicted for v5e; state a share"),
        (["--json=no/such/folder/a.json"], "expected a file in a folder that exists"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(config, capsys, flags, message):
    assert main(["plan", f"--config={config}", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bert-lamb: ")
    assert message in line


@needs_libtpu
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--topology=v3:3x3"], "topology v3:3x3: the TPU compiler does not know this shape"),
        (["--topology=v3:8x8"], "global_batch = 64: expected a multiple of the 128 devices"),
        (["--topology=v3:2x2", "--config.parallel.fsdp=3"], "expected a divisor of the 8 devices"),
    ],
)
def test_what_does_not_fit_the_topology_is_told_before_compiling(config, capsys, flags, message):
    assert main(["plan", f"--config={config}", "--vocab-size=512", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_the_compiler_the_plan_says_what_to_install(config, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)  # what Python takes for not installed
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    assert main(["plan", f"--config={config}", "--topology=v3:2x2"]) == 2
    assert "pip install 'bert-lamb[tpu]'" in capsys.readouterr().err


def test_sweeps_combine_and_reach_every_phase():
    sweeps = [parse_sweep("config.a=1,2"), parse_sweep("config.phases[*].b=x,y")]
    settings = settings_of(sweeps)
    assert [tuple(setting.values()) for setting in settings] == [
        ("1", "x"), ("1", "y"), ("2", "x"), ("2", "y"),
    ]  # fmt: skip
    assert expand_phases("--config.phases[*].b=x", 2) == [
        "--config.phases[0].b=x", "--config.phases[1].b=x",
    ]  # fmt: skip
    assert expand_phases("--config.seed=1", 2) == ["--config.seed=1"]
    assert settings_of([]) == [{}]
    with pytest.raises(ConfigError, match="given twice"):
        settings_of([parse_sweep("config.a=1"), parse_sweep("config.a=2")])


@pytest.mark.slow
@needs_libtpu
def test_a_step_compiled_for_a_slice_is_told_compared_kept_and_drawn(config, capsys, tmp_path):
    flags = [
        f"--config={config}", "--vocab-size=512", f"--cache={tmp_path / 'cache'}",
        "--price-per-chip-hour=2", "--rows-per-second-per-host=10",
    ]  # fmt: skip
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    command = ["plan", *flags, "--topology=v3:2x2", f"--json={out}", f"--plot={picture}"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "compiling for 8 x TPU v3" in told.err
    assert "TOO FEW: the devices would wait" in told.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    plan = json.loads(out.read_text())
    (phase,) = plan["phases"]
    figures = phase["fit"]["figures"]
    prediction = figures["prediction"]
    # Eight devices share the model's operations; the one-hot products of segments come on top.
    assert 8 * figures["flops"] == pytest.approx(phase["model_flops"], rel=0.03)
    assert phase["fit"]["capacity"] == round(15.48 * 2**30)
    assert figures["memory"]["peak"] >= figures["memory"]["arguments"]
    assert prediction["computing"]["matrix products"] > 0
    assert prediction["seconds"] == pytest.approx(1.15 * prediction["estimate"])
    computing = sum(prediction["computing"].values())
    assert prediction["estimate"] == pytest.approx(computing + prediction["exposed"])
    assert plan["minutes"] == pytest.approx(100 * prediction["seconds"] / 60)
    assert plan["cost"] == pytest.approx(2 * 4 * plan["minutes"] / 60)
    assert phase["host_rows"] == pytest.approx(64 / prediction["seconds"])
    assert main([*command, "--kappa=1"]) == 0
    told = capsys.readouterr()
    assert "read from" in told.err
    assert "compiling" not in told.err
    again = json.loads(out.read_text())
    assert again["minutes"] == pytest.approx(plan["minutes"] / 1.15)
