"""Checkpoints are complete or set aside; what they hold can be listed and taken over."""

import dataclasses
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_lamb.config import ParallelConfig
from bert_lamb.parallel.layout import placed
from bert_lamb.parallel.mesh import make_mesh, replicated
from bert_lamb.training.checkpoint import (
    CheckpointError,
    Checkpoints,
    Progress,
    describe,
    fingerprint,
    load_weights,
)
from bert_lamb.training.state import Skipped, TrainState


def _state(step: int) -> TrainState:
    count = jnp.asarray(step, jnp.int32)
    return TrainState(
        step=count,
        params={"dense": {"kernel": jnp.full((64, 32), step / 7), "bias": jnp.zeros(32)}},
        opt_state={"mu": jnp.full((64, 32), step / 3), "count": count},
        window={"loss": jnp.float32(step)},
        skipped=Skipped(in_row=count, total=count, tensor=count),
    )


def _progress(step: int) -> Progress:
    return Progress(step=step, phase=0, next_batch=step, seed=1, records={"r": "h"},
                    config={"a": 1}, version="0")  # fmt: skip


def _shapes(devices: int = 1) -> TrainState:
    sharding = replicated(make_mesh(ParallelConfig(), jax.devices()[:devices]))
    shapes = jax.eval_shape(lambda: _state(0))
    return placed(shapes, jax.tree.map(lambda _: sharding, shapes))


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """Checkpoints of the steps 1, 2 and 3."""
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(_state(step), _progress(step))
    return tmp_path


def test_p43_every_leaf_comes_back_on_any_mesh(workdir):
    for devices in (1, 8):
        with Checkpoints(workdir) as checkpoints:
            state, progress = checkpoints.restore_newest(_shapes(devices))
        assert progress == _progress(3)
        jax.tree.map(np.testing.assert_array_equal, state, _state(3))
        assert all(len(leaf.sharding.device_set) == devices for leaf in jax.tree.leaves(state))


def test_keeps_the_newest(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(_state(step), _progress(step))
        checkpoints.wait()
        assert checkpoints.steps() == [2, 3]


def _damage(folder: Path, how: str) -> None:
    if how == "truncated":
        largest = max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
        largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    elif how == "no progress":
        (folder / "progress" / "metadata").write_text("{}")
    else:
        (folder / "optimizer" / "_METADATA").unlink()


@pytest.mark.parametrize("how", ["truncated", "no progress", "no metadata"])
def test_p44_a_broken_newest_is_set_aside_with_a_warning(workdir, caplog, how):
    _damage(workdir / "checkpoints" / "3", how)
    with caplog.at_level(logging.WARNING), Checkpoints(workdir, keep=5) as checkpoints:
        state, progress = checkpoints.restore_newest(_shapes())
        assert progress.step == 2
        jax.tree.map(np.testing.assert_array_equal, state, _state(2))
        assert "cannot be read" in caplog.text
        assert (workdir / "checkpoints" / "unreadable-3").is_dir()
        checkpoints.save(_state(3), _progress(3))
        checkpoints.wait()
        assert checkpoints.steps() == [1, 2, 3]


def test_p44_folders_that_were_never_committed_are_ignored(workdir):
    (workdir / "checkpoints" / "4.orbax-checkpoint-tmp-17").mkdir()
    with Checkpoints(workdir, keep=5) as checkpoints:
        _, progress = checkpoints.restore_newest(_shapes())
    assert progress.step == 3


def test_p44_if_all_are_broken_nothing_starts_from_scratch_in_silence(workdir):
    for step in (1, 2, 3):
        _damage(workdir / "checkpoints" / str(step), "truncated")
    with (
        Checkpoints(workdir) as checkpoints,
        pytest.raises(CheckpointError, match=r"none of the checkpoints \[1, 2, 3\] can be read"),
    ):
        checkpoints.restore_newest(_shapes())
    assert (workdir / "checkpoints" / "3").is_dir()


def test_p39_a_missing_key_is_an_error():
    values = dataclasses.asdict(_progress(3))
    del values["next_batch"]
    with pytest.raises(CheckpointError, match="progress lacks next_batch"):
        Progress.from_json(values, "checkpoints/3")


def test_p53_inspect_lists_tensors_step_and_optimizer_state(workdir):
    text = describe(workdir / "checkpoints" / "3")
    assert "dense/kernel" in text
    assert "[64, 32]" in text
    assert text.endswith("2 tensors, 2,080 parameters; optimizer state: 7 tensors, step 3")


def test_p53_weights_only(tmp_path):
    folder = tmp_path / "weights"
    with ocp.StandardCheckpointer() as writer:
        writer.save(folder, _state(5).params)
    assert describe(folder).endswith("no optimizer state, step unknown")
    params, sentence = load_weights(folder, _shapes().params)
    jax.tree.map(np.testing.assert_array_equal, params, _state(5).params)
    assert "no optimizer state and no step are in it" in sentence


def test_p53_weights_of_a_run_say_what_is_not_taken_over(workdir):
    folder = workdir / "checkpoints" / "2"
    params, sentence = load_weights(folder, _shapes().params)
    jax.tree.map(np.testing.assert_array_equal, params, _state(2).params)
    assert "optimizer state, step and data position are not taken over" in sentence


def test_weights_that_do_not_fit_are_refused_by_name(workdir):
    shapes = {
        "dense": {"kernel": jax.ShapeDtypeStruct((64, 31), jnp.float32)},
        "nsp": {"bias": jax.ShapeDtypeStruct((2,), jnp.float32)},
    }
    with pytest.raises(CheckpointError) as caught:
        load_weights(workdir / "checkpoints" / "2", shapes)
    for part in ("missing nsp/bias", "unexpected dense/bias", "(64, 32), the model (64, 31)"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_inspecting_something_else_is_a_clear_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=name):
        describe(tmp_path / name)


def test_fingerprint_tells_values_apart():
    same = fingerprint(_state(1).params)
    assert same == fingerprint(_state(1).params)
    assert same != fingerprint(_state(2).params)
    assert len(same) == 12


def test_a_relative_working_directory_is_as_good_as_an_absolute_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Checkpoints("runs/one") as checkpoints:
        checkpoints.save(_state(1), _progress(1))
    assert describe("runs/one/checkpoints/1").endswith("step 1")
    with Checkpoints("runs/one", read_only=True) as checkpoints:
        params, _ = checkpoints.restore_params(_shapes().params)
    jax.tree.map(np.testing.assert_array_equal, params, _state(1).params)
