"""A run that is killed and restarted computes the same numbers as one that never stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_lamb.config import ParallelConfig, PretrainConfig, from_dict
from bert_lamb.model import pretraining
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training import preflight
from bert_lamb.training.checkpoint import Checkpoints, Progress
from bert_lamb.training.start import initial_state, lay_out, state_shapes
from bert_lamb.training.state import TrainState
from tests.conftest import CACHE

KILLED_RUN = Path(__file__).parent / "killed_run.py"


@pytest.fixture(scope="module")
def runner(small: dict[str, Any], tmp_path_factory: pytest.TempPathFactory):
    """Starts real processes on one config file; they share a compilation cache."""
    folder = tmp_path_factory.mktemp("resume")
    config = folder / "config.py"
    values = small | {"checkpoint": {"every_steps": 2, "keep": 2}}
    config.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({values!r})\n"
    )
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }

    def run(workdir: Path, *, signal: str = "", after: int = 0, flags: tuple[str, ...] = ()):
        program = [str(KILLED_RUN), signal, str(after)] if signal else ["-m", "bert_lamb.cli"]
        return subprocess.run(
            [sys.executable, *program, "pretrain", f"--config={config}", f"--workdir={workdir}",
             *flags],
            capture_output=True, text=True, env=environment, timeout=300, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def straight(runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps without a stop: six of phase 1, four of phase 2, dropout on."""
    workdir = tmp_path_factory.mktemp("straight")
    finished = runner(workdir)
    assert finished.returncode == 0, finished.stderr
    return workdir


def _records(workdir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def _learned(workdir: Path) -> list[dict[str, Any]]:
    """What each step computed, without what the clock measured."""
    names = ("step", "loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "grad_norm", "learning_rate")
    return [{name: record[name] for name in names} for record in _records(workdir, "train")]


def _fresh_state(workdir: Path) -> TrainState:
    config = from_dict(PretrainConfig, preflight.read_config(workdir))
    return initial_state(config, pretraining(config.model))


def _final(workdir: Path) -> tuple[TrainState, Progress]:
    config = from_dict(PretrainConfig, preflight.read_config(workdir))
    layout = lay_out(pretraining(config.model), make_mesh(ParallelConfig(), jax.devices()[:1]))
    with Checkpoints(workdir, read_only=True) as checkpoints:
        restored = checkpoints.restore_newest(
            state_shapes(config, pretraining(config.model), layout)
        )
    assert restored is not None
    return restored


def test_p39_p40_p41_p43_p48_sigkill_after_steps_3_and_7_changes_nothing(
    runner, straight, tmp_path
):
    """Parameters, moments, counts and logged losses are bit-equal across the phase boundary."""
    for after in (3, 7):
        killed = runner(tmp_path, signal="SIGKILL", after=after)
        assert killed.returncode == -9, killed.stderr
        steps = [int(p.name) for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit()]
        assert max(steps, default=0) <= after
    finished = runner(tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "resuming at step" in finished.stderr

    state, progress = _final(tmp_path)
    expected, expected_progress = _final(straight)
    assert progress == expected_progress
    assert (progress.step, progress.phase) == (10, 2)
    for (path, ours), theirs in zip(
        jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, err_msg=jax.tree_util.keystr(path))
    assert _learned(tmp_path) == _learned(straight)
    assert [record["step"] for record in _learned(tmp_path)] == list(range(1, 11))


def test_p46_p48_learning_rates_of_both_phases_in_the_log(straight, small):
    rates = [record["learning_rate"] for record in _learned(straight)]
    first, second = small["phases"]
    assert rates[first["warmup_steps"] - 1] == pytest.approx(first["peak_lr"])
    assert rates[6] == pytest.approx(second["peak_lr"])  # one step of warm-up
    assert all(rate > 0 for rate in rates)
    assert rates[2:6] == sorted(rates[2:6], reverse=True)
    assert rates[7:] == sorted(rates[7:], reverse=True)


def test_p47_the_log_shows_the_hand_over_and_later_positions_learn_in_phase_2(straight):
    state, _ = _final(straight)
    fresh = _fresh_state(straight)
    name = ("embeddings", "position", "embedding")
    table, start = state.params, fresh.params
    for key in name:
        table, start = table[key], start[key]
    changed = np.any(np.asarray(table) != np.asarray(start), axis=1)
    assert changed.all()


@pytest.mark.slow
def test_p47_positions_beyond_phase_1_keep_their_values_without_decay(runner, tmp_path):
    """Phase 1 alone, no weight decay: rows 16 to 31 of the position table stay as drawn."""
    stopped = runner(
        tmp_path, signal="SIGTERM", after=6, flags=("--config.optimizer.weight_decay=0.0",)
    )
    assert stopped.returncode == 143, stopped.stderr
    state, progress = _final(tmp_path)
    assert (progress.step, progress.phase, progress.next_batch) == (6, 1, 0)
    fresh = _fresh_state(tmp_path)
    table = np.asarray(state.params["embeddings"]["position"]["embedding"])
    start = np.asarray(fresh.params["embeddings"]["position"]["embedding"])
    np.testing.assert_array_equal(table[16:], start[16:])
    assert np.any(table[:16] != start[:16])


@pytest.mark.parametrize(
    ("signal", "code"), [("SIGTERM", 143), pytest.param("SIGINT", 130, marks=pytest.mark.slow)]
)
def test_a_signal_saves_the_step_and_the_same_command_resumes(
    runner, straight, tmp_path, signal, code
):
    stopped = runner(tmp_path, signal=signal, after=3)
    assert stopped.returncode == code, stopped.stderr
    assert "stopped by signal" in stopped.stdout
    assert (tmp_path / "checkpoints" / "3").is_dir()
    finished = runner(tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "resuming at step 3 of 10: phase 1, batch 3 of it" in finished.stderr
    assert _learned(tmp_path) == _learned(straight)


def test_a_finished_run_says_so_and_changes_nothing(runner, straight):
    before = (straight / "metrics.jsonl").read_text().splitlines()
    again = runner(straight)
    assert again.returncode == 0, again.stderr
    assert "this run is complete: 10 steps" in again.stderr
    assert (straight / "metrics.jsonl").read_text().splitlines()[: len(before)] == before


def test_another_configuration_is_refused_with_the_differences(runner, straight):
    refused = runner(straight, flags=("--config.optimizer.weight_decay=0.5",))
    assert refused.returncode == 1
    assert "config.optimizer.weight_decay: 0.01 -> 0.5" in refused.stderr
    assert "Traceback" not in refused.stderr
    allowed = runner(straight, flags=("--config.logging.every_steps=5",))
    assert allowed.returncode == 0, allowed.stderr
