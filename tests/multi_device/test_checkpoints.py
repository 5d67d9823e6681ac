"""A checkpoint of one mesh is restored on any other."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_lamb.config import ParallelConfig
from bert_lamb.model import pretraining
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training.checkpoint import Checkpoints, Progress
from bert_lamb.training.start import lay_out, state_shapes
from bert_lamb.training.state import TrainState
from tests.steps import Setting, assert_close, batch, compiled, config_of, run

SAVED = Setting(ParallelConfig(tensor=2))
MESHES = {
    "1": (ParallelConfig(), 1),
    "8x1": (ParallelConfig(), 8),
    "2x4": (ParallelConfig(data=2, fsdp=2, tensor=2), 8),
    "fsdp 8": (ParallelConfig(fsdp=8), 8),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory):
    """The state after two steps on 4 x 2 devices, and the folder of its checkpoint."""
    state, _ = run([batch(0), batch(1)], SAVED)
    workdir = tmp_path_factory.mktemp("saved")
    with Checkpoints(workdir) as checkpoints:
        checkpoints.save(state, Progress(2, 0, 2, 5, {}, {}, "0"))
    return state, workdir


def _restored(workdir, parallel: ParallelConfig, devices: int) -> tuple[TrainState, Layout]:
    config = config_of(dataclasses.replace(SAVED, parallel=parallel, devices=devices))
    layout = lay_out(pretraining(config.model), make_mesh(parallel, jax.devices()[:devices]))
    with Checkpoints(workdir, read_only=True) as checkpoints:
        restored = checkpoints.restore_newest(
            state_shapes(config, pretraining(config.model), layout)
        )
    assert restored is not None
    return restored[0], layout


@pytest.mark.parametrize("name", MESHES)
def test_p43_a_checkpoint_of_4x2_is_the_same_on_every_mesh(saved, name):
    state, layout = _restored(saved[1], *MESHES[name])
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(saved[0]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for leaf, sharding in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(layout.shardings()), strict=True
    ):
        assert leaf.sharding == sharding


def test_training_goes_on_where_the_other_mesh_left_it(saved):
    expected, _ = run([batch(i) for i in range(4)], SAVED)
    parallel = ParallelConfig(fsdp=8)
    state, layout = _restored(saved[1], parallel, 8)
    step, _, _ = compiled(Setting(parallel))
    for i in (2, 3):
        state, _ = step(state, put_batch(batch(i), layout.mesh))
    assert_close(state.params, expected.params, 1e-5)
