"""Training steps of a tiny model on any mesh, from batches with uneven numbers of masked tokens."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from bert_lamb.config import (
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    PhaseConfig,
    PretrainConfig,
)
from bert_lamb.model import pretraining
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import make_mesh, row_devices
from bert_lamb.training.program import phase_step
from bert_lamb.training.start import initial_state, lay_out, state_shapes
from bert_lamb.training.state import TrainState
from tests.quick import jit

B, T, P = 16, 16, 9
MODEL = ModelConfig(
    vocab_size=61, num_layers=2, hidden_size=16, num_heads=2, intermediate_size=32,
    max_positions=16, vocab_multiple=8, scan_layers=True,
)  # fmt: skip
PHASE = PhaseConfig(
    records="none", seq_length=T, global_batch=B, steps=60, max_predictions=P, peak_lr=1e-2,
    warmup_steps=4,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a compiled step depends on."""

    parallel: ParallelConfig = dataclasses.field(default_factory=ParallelConfig)
    devices: int = 8
    micro_batches: int = 1
    model: ModelConfig = MODEL
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    nonfinite_limit: int = 2


def config_of(setting: Setting) -> PretrainConfig:
    rows = B // row_devices(make_mesh(setting.parallel, jax.devices()[: setting.devices]))
    phase = dataclasses.replace(PHASE, max_rows_per_device=rows // setting.micro_batches)
    return PretrainConfig(
        model=setting.model, optimizer=setting.optimizer, phases=(phase,),
        parallel=setting.parallel, logging=LoggingConfig(every_steps=1), seed=5,
        nonfinite_limit=setting.nonfinite_limit,
    )  # fmt: skip


def batch(seed: int = 0, masks: Any = None) -> dict[str, np.ndarray]:
    """A batch whose rows have very different numbers of masked tokens."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, P + 1, B) if masks is None else np.broadcast_to(masks, B)
    return {
        "input_ids": rng.integers(5, 61, (B, T)).astype(np.int32),
        "input_mask": (np.arange(T) < rng.integers(10, T + 1, (B, 1))).astype(np.int32),
        "segment_ids": np.zeros((B, T), np.int32),
        "masked_lm_positions": np.sort(rng.integers(1, 10, (B, P)), axis=1).astype(np.int32),
        "masked_lm_ids": rng.integers(5, 61, (B, P)).astype(np.int32),
        "masked_lm_weights": (np.arange(P) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, B).astype(np.int32),
        "next_sentence_weights": np.ones(B, np.float32),
        "row": np.arange(B, dtype=np.int32),
    }


@functools.cache
def compiled(setting: Setting) -> tuple[jax.stages.Compiled, TrainState, Layout]:
    """The step, the state before the first one, and where it lies."""
    config = config_of(setting)
    layout = lay_out(
        pretraining(config.model), make_mesh(config.parallel, jax.devices()[: setting.devices])
    )
    lies = jax.tree.map(
        lambda x: x.sharding, state_shapes(config, pretraining(config.model), layout)
    )
    state = jit(
        functools.partial(initial_state, config, pretraining(config.model)), out_shardings=lies
    )()
    step = jit(phase_step(config, pretraining(config.model), 0, layout), out_shardings=(lies, None))
    return step.lower(state, put_batch(batch(), layout.mesh)).compile(), state, layout


def run(
    batches: list[dict[str, np.ndarray]], setting: Setting = Setting(devices=1)
) -> tuple[TrainState, list[dict[str, float]]]:
    """Takes one step for each batch; returns the state and what each step reported."""
    step, state, layout = compiled(setting)
    reports = []
    for each in batches:
        state, report = step(state, put_batch(each, layout.mesh))
        ratios = report.pop("trust_ratios")
        assert jax.tree.structure(ratios) == jax.tree.structure(state.params)
        reports.append({name: float(value) for name, value in report.items()})
    return state, reports


def assert_close(a: Any, b: Any, tolerance: float) -> None:
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True
    ):
        np.testing.assert_allclose(
            x, y, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path)
        )
