"""Every file under configs/: it converts, its numbers are the published ones, and the docs' too."""

import ast
import json
import math
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh

from bert_lamb import optim, recipes
from bert_lamb.cli.overrides import load_config
from bert_lamb.config import PretrainConfig, from_dict
from bert_lamb.model import pretraining
from bert_lamb.parallel.mesh import AXES, axis_sizes, make_mesh, row_devices
from bert_lamb.training import phases, preflight
from bert_lamb.training.checkpoint import CheckpointError, load_weights
from bert_lamb.training.start import lay_out

ROOT = Path(__file__).parents[1]
# tests/finetuning/test_configs.py has the others.
FILES = {
    path.stem: path
    for path in sorted((ROOT / "configs").glob("*.py"))
    if not path.stem.startswith(("squad", "glue"))
}
ONE_BATCH = [row for row in recipes.TABLE_1 if row.rate_exponent is not None]
LARGE = [name for name in FILES if name.startswith(("bert_large", "bert_base"))]


def _load(name: str, *flags: str) -> PretrainConfig:
    return load_config(str(FILES[name]), flags)


def _named(rows: list[recipes.Row] | tuple[recipes.Row, ...]) -> list:
    return [pytest.param(row, id=row.config) for row in rows]


@pytest.mark.parametrize("name", FILES)
def test_every_config_file_is_valid_and_says_how_to_run_it(name):
    assert _load(name).total_steps > 0
    text = ast.get_docstring(ast.parse(FILES[name].read_text(encoding="utf-8")))
    for word in ("Command:", "Hardware"):
        assert word in text
    if name in LARGE:
        assert f"--config=configs/{name}.py" in text
        assert "docs/recipe.md" in text
        assert "Stand" in text


# Table 1.


@pytest.mark.parametrize("row", _named(ONE_BATCH))
def test_batch_and_tokens_give_the_rate_warm_up_and_steps_of_table_1(row):
    config = _load(row.config)
    (batch,) = row.batches
    assert {phase.global_batch for phase in config.phases} == {batch}
    assert [phase.seq_length for phase in config.phases] == [128, 512]
    assert config.total_steps == row.steps
    for phase in config.phases:
        assert phase.peak_lr == pytest.approx(row.peak_lr, rel=1e-12)
        assert phase.warmup_steps / row.steps == pytest.approx(row.warmup_ratio, rel=1e-12)
    assert abs(config.phases[0].steps - 0.9 * row.steps) <= 0.5


@pytest.mark.parametrize("row", _named(recipes.TABLE_1))
def test_every_row_of_table_1_sees_the_same_tokens(row):
    tokens = sum(p.steps * p.global_batch * p.seq_length for p in _load(row.config).phases)
    assert tokens == pytest.approx(8.52e10, rel=1e-3)


@pytest.mark.parametrize("row", _named(ONE_BATCH))
def test_the_optimizer_package_gives_the_same_rules(row):
    rule = optim.untuned_lamb(row.batches[0])
    phase = _load(row.config).phases[0]
    assert rule.learning_rate == pytest.approx(phase.peak_lr, rel=1e-12)
    assert (rule.warmup_steps, rule.steps) == (phase.warmup_steps, phase.schedule_steps)


def test_the_largest_batch_has_14063_and_1562_steps():
    assert recipes.split_steps(32_768) == (14_063, 1_562)


def test_the_mixed_batch_has_8599_steps_and_the_batches_of_the_paper():
    config = _load("bert_large_64k_32k")
    assert config.total_steps == 8_599
    assert [(p.seq_length, p.global_batch, p.steps) for p in config.phases] == [
        (128, 65_536, 7_037),
        (512, 32_768, 1_562),
    ]
    # The second phase is that of batch 32,768.
    assert config.phases[1].steps == recipes.split_steps(32_768)[1]


def test_one_schedule_runs_through_both_phases_and_warms_up_once():
    short, long = _load("bert_large_32k").phases
    updates = np.arange(short.steps)
    rates = np.concatenate([phases.schedule(short)(updates), phases.schedule(long)(updates)])
    rates = rates[: short.steps + long.steps]
    peak = 3_125 - 1
    assert rates[peak] == pytest.approx(5e-3)
    assert np.all(np.diff(rates[: peak + 1]) > 0)
    assert np.all(np.diff(rates[peak:]) < 0)
    # Counted from step 0, the decay is at four fifths of the peak where the warm-up ends.
    assert rates[peak + 1] == pytest.approx(4e-3, rel=1e-3)
    assert 0 < rates[-1] < 1e-6


@pytest.mark.parametrize("row", _named(ONE_BATCH))
def test_lars_runs_from_the_file_of_every_lamb_row(row):
    assert _load(row.config, "--config.optimizer.name=lars").optimizer.name == "lars"


@pytest.mark.parametrize("row", _named(recipes.TABLE_1))
def test_a_docstring_has_the_published_score_time_and_chips(row):
    text = " ".join(ast.get_docstring(ast.parse(FILES[row.config].read_text())).split())
    assert f"F1 {row.f1:.3f}" in text
    assert f"{row.chips:,} TPU v3 chips" in text
    assert any(time in text for time in _times(row))
    if row.lars_f1 is not None:
        known = not math.isnan(row.lars_f1)
        assert (f"the paper has F1 {row.lars_f1}" if known else "diverges") in text


def _times(row: recipes.Row) -> tuple[str, str, str]:
    return f"{row.minutes / 60:.1f} h", f"{row.minutes:.1f} min", f"{row.minutes:.2f} min"


# Where they run.


@pytest.mark.parametrize("row", _named(recipes.TABLE_1))
def test_a_row_fits_its_published_chips(row):
    config = _load(row.config)
    cores = recipes.CORES_PER_CHIP * row.chips
    preflight.check_devices(config, cores)
    if len(row.batches) == 1:
        laid_out = recipes.one_batch(row.batches[0], chips=row.chips)
        assert config.parallel == from_dict(PretrainConfig, laid_out.to_dict()).parallel
        assert row.batches[0] == 16 * cores


@pytest.mark.parametrize(("chips", "ring"), [(16, 8), (32, 16), (256, 32), (512, 64), (1024, 64)])
def test_parameters_are_cut_over_a_ring_of_the_slice(chips, ring):
    parallel = _load("bert_large_32k").parallel
    cores = recipes.CORES_PER_CHIP
    _, _, fsdp, _ = axis_sizes(parallel, cores * chips, 1, cores)
    assert fsdp == ring


@pytest.mark.parametrize("name", LARGE)
def test_a_config_lays_its_parameters_out_on_its_ring_and_on_other_devices(name):
    config = _load(name, "--config.model.vocab_size=30522")
    for devices in (1, 8, 64):
        sizes = axis_sizes(config.parallel, devices, 1)
        lay_out(pretraining(config.model), AbstractMesh(sizes, AXES))
        preflight.check_devices(config, devices)
    mesh = make_mesh(config.parallel, jax.devices())
    preflight.check_devices(config, row_devices(mesh))
    assert config.model.vocab_size < recipes.pod_layout()["model"]["vocab_multiple"] * 30 == 30_720


# Runs that no rule gives.


@pytest.mark.parametrize("batch", recipes.MLPERF)
def test_mlperf_runs_have_its_settings_and_ask_for_a_checkpoint(batch):
    config, published = _load(f"bert_large_mlperf_{batch}"), recipes.MLPERF[batch]
    (phase,) = config.phases
    assert (phase.global_batch, phase.seq_length, phase.max_predictions) == (batch, 512, 76)
    settings = recipes.Mlperf(
        phase.peak_lr, config.optimizer.b1, config.optimizer.b2, config.optimizer.weight_decay,
        phase.warmup_steps, phase.warmup_start, phase.steps,
    )  # fmt: skip
    assert settings == published
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_OF_PHASE_1.*no such checkpoint folder"):
        load_weights(config.init_from, {})


def test_the_stand_ins_of_the_mixed_batch_are_nvidias():
    paper, nvidia = _load("bert_large_64k_32k"), _load("bert_large_nvidia_64k_32k")
    assert [phase.steps for phase in nvidia.phases] == [7_038, 1_563]
    assert nvidia.optimizer.variant == "apex"
    for ours, theirs in zip(paper.phases, nvidia.phases, strict=True):
        for key in ("peak_lr", "warmup_steps", "decay_power", "decay_form", "global_batch"):
            assert getattr(ours, key) == getattr(theirs, key)
    # The published warm-ups are shares of the phases.
    shares = [phase.warmup_steps / phase.steps for phase in nvidia.phases]
    assert shares == pytest.approx([0.2843, 0.128], rel=1e-3)


def test_adamw_baselines_follow_from_batch_512():
    small, large = _load("bert_large_adamw_512"), _load("bert_large_adamw_16k")
    assert small.phases[0].peak_lr == 1e-4
    assert large.phases[0].peak_lr == pytest.approx(1e-4 * 32**0.5)
    assert large.total_steps == _load("bert_large_16k").total_steps
    assert not small.optimizer.bias_correction


# docs/recipe.md.


def _table(heading: str) -> list[dict[str, str]]:
    """The first table under a heading of docs/recipe.md, a dict for each row."""
    text = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = section[section.index("\n|") + 1 :].split("\n\n", 1)[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = table
    return [dict(zip(head, row, strict=True)) for row in rows]


def _numbers(cell: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"[0-9][0-9.,e-]*", cell)]


def test_table_1_in_the_docs_is_that_of_the_recipes():
    shown = _table("Table 1")
    assert [row["config"].strip("`") for row in shown] == [row.config for row in recipes.TABLE_1]
    for cells, row in zip(shown, recipes.TABLE_1, strict=True):
        config = _load(row.config)
        first, second = config.phases
        one_rate = len(row.batches) == 1
        batches, rates = [p.global_batch for p in config.phases], [first.peak_lr, second.peak_lr]
        warmups = [phase.warmup_steps for phase in config.phases]
        assert _numbers(cells["batch"]) == (batches[:1] if one_rate else batches)
        assert _numbers(cells["peak rate"]) == pytest.approx(
            rates[:1] if one_rate else rates, rel=5e-4
        )
        assert _numbers(cells["warm-up"]) == (warmups[:1] if one_rate else warmups)
        assert _numbers(cells["steps"]) == [first.steps, second.steps]
        assert _numbers(cells["F1"]) == [row.f1]
        known = [] if row.lars_f1 is None or math.isnan(row.lars_f1) else [row.lars_f1]
        assert _numbers(cells["LARS F1"]) == known
        assert _numbers(cells["chips"]) == [row.chips]
        assert cells["time"] in _times(row)


def test_the_other_runs_in_the_docs_are_those_of_the_files():
    shown = {row["config"].strip("`"): row for row in _table("Other runs")}
    assert set(shown) == set(LARGE) - {row.config for row in recipes.TABLE_1}
    for name, cells in shown.items():
        config = _load(name)
        one_schedule = config.phases[0].schedule_steps > 0
        listed = config.phases[:1] if one_schedule else config.phases
        assert _numbers(cells["batch"]) == [phase.global_batch for phase in listed]
        assert _numbers(cells["peak rate"]) == pytest.approx(
            [phase.peak_lr for phase in listed], rel=5e-4
        )
        assert _numbers(cells["warm-up"]) == [phase.warmup_steps for phase in listed]
        assert _numbers(cells["steps"]) == [phase.steps for phase in config.phases]


def test_mlperfs_settings_in_the_docs_are_those_of_the_recipes():
    columns = {"peak rate": "peak_lr", "b1": "b1", "b2": "b2", "decay": "weight_decay",
               "warm-up": "warmup_steps", "its start": "warmup_start",
               "steps": "steps"}  # fmt: skip
    shown = {int(row["batch"].replace(",", "")): row for row in _table("MLPerf's phase 2")}
    assert set(shown) == set(recipes.MLPERF)
    for batch, cells in shown.items():
        for column, key in columns.items():
            number = float(cells[column].replace(",", ""))
            assert number == getattr(recipes.MLPERF[batch], key), (batch, column)


def test_predicted_minutes_in_the_documentation_are_those_of_the_recorded_plans():
    planned = json.loads((ROOT / "docs/results/plan_table1/results.json").read_text())["rows"]
    section = (ROOT / "docs/recipe.md").read_text().partition("## Predicted time")[2]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    expected = []
    for row in planned:
        star, (chips, minutes, published) = (
            " *" * row["quick"],
            (row["cells"][i] for i in (2, 7, 9)),
        )
        expected.append(f"| `{row['config']}`{star} | {chips} | {minutes} | {published} |")
    assert lines == expected
