"""The update does not depend on how the batch is spread over devices and micro-batches."""

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from bert_lamb import model
from bert_lamb.config import ModelConfig, OptimizerConfig, PhaseConfig
from bert_lamb.parallel.mesh import make_mesh, put_batch, replicated
from bert_lamb.training.phases import make_optimizer, schedule, schedule_count
from bert_lamb.training.state import TrainState, new_state
from bert_lamb.training.step import Step, build_step
from tests.quick import jit

MODEL = ModelConfig(vocab_size=61, num_layers=2, hidden_size=16, num_heads=2, intermediate_size=32,
                    max_positions=16, vocab_multiple=8)  # fmt: skip
PHASE = PhaseConfig(seq_length=16, global_batch=16, steps=20, max_predictions=9, peak_lr=1e-2,
                    warmup_steps=4)  # fmt: skip
B, T, P = 16, 16, 9


def _batch(seed: int = 0, masks: Any = None) -> dict[str, np.ndarray]:
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
def _compiled(
    config: ModelConfig, devices: int, micro_batches: int, nonfinite_limit: int
) -> tuple[Step, TrainState, Mesh]:
    mesh = make_mesh(jax.devices()[:devices])
    params = jit(functools.partial(model.init, config))(jax.random.key(0))
    optimizer = make_optimizer(OptimizerConfig(), PHASE, params)
    step = build_step(
        config, optimizer, schedule(PHASE), mesh, seed=5, micro_batches=micro_batches,
        window_steps=1, nonfinite_limit=nonfinite_limit,
    )  # fmt: skip
    state = jit(lambda p: new_state(p, optimizer))(params)
    return jit(step).lower(state, put_batch(_batch(), mesh)).compile(), state, mesh


def _run(
    batches: list[dict[str, np.ndarray]],
    *,
    devices: int = 1,
    micro_batches: int = 1,
    config: ModelConfig = MODEL,
    nonfinite_limit: int = 2,
) -> tuple[TrainState, list[dict[str, float]]]:
    step, state, mesh = _compiled(config, devices, micro_batches, nonfinite_limit)
    state = jax.device_put(state, replicated(mesh))
    reports = []
    for batch in batches:
        state, report = step(state, put_batch(batch, mesh))
        ratios = report.pop("trust_ratios")
        assert jax.tree.structure(ratios) == jax.tree.structure(state.params)
        reports.append({name: float(value) for name, value in report.items()})
    return state, reports


def _close(a: TrainState, b: TrainState, tolerance: float) -> None:
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True
    ):
        np.testing.assert_allclose(
            x, y, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path)
        )


@pytest.fixture(scope="module")
def one_device() -> tuple[TrainState, list[dict[str, float]]]:
    return _run([_batch(0), _batch(1), _batch(2)])


@pytest.mark.parametrize("devices", [2, 8])
def test_p60_p56_any_number_of_devices_gives_the_same_update(one_device, devices):
    """Uneven mask counts, dropout on: losses, gradients' norms and parameters agree."""
    state, reports = _run([_batch(0), _batch(1), _batch(2)], devices=devices)
    _close(state, one_device[0], 1e-5)
    for ours, theirs in zip(reports, one_device[1], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 4), (2, 4), (4, 2)])
def test_p61_p50_accumulation_equals_one_big_batch(one_device, devices, micro_batches):
    """Micro-batches are weighted by their masked tokens; the schedule counts updates."""
    state, reports = _run(
        [_batch(0), _batch(1), _batch(2)], devices=devices, micro_batches=micro_batches
    )
    _close(state, one_device[0], 1e-5)
    assert int(schedule_count(state.opt_state)) == 3
    assert [r["learning_rate"] for r in reports] == [r["learning_rate"] for r in one_device[1]]


def test_p60_two_devices_with_one_and_nine_masked_tokens():
    masks = np.repeat([1, 9], B // 2)
    one, first = _run([_batch(3, masks)])
    two, second = _run([_batch(3, masks)], devices=2)
    assert second[0]["mlm_loss"] == pytest.approx(first[0]["mlm_loss"], rel=1e-6)
    assert second[0]["mlm_weight"] == 8 * 1 + 8 * 9
    _close(two, one, 1e-6)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_gradients_are_reduced_once_per_update_whatever_the_accumulation(micro_batches):
    step, _, _ = _compiled(MODEL, 8, micro_batches, 2)
    computations = re.split(r"\n(?=%|ENTRY)", step.as_text())
    reducing = {c.split()[0] for c in computations if " all-reduce(" in c}
    assert reducing == {"ENTRY"}  # none inside of a loop


@pytest.mark.parametrize("masks", [0, 37 % P])
def test_p26_p64_batches_with_no_and_with_many_masked_tokens_have_finite_losses(masks):
    state, reports = _run([_batch(4, masks)])
    assert all(np.isfinite(list(reports[0].values())))
    assert reports[0]["mlm_weight"] == masks * B
    assert reports[0]["skipped_total"] == 0
    assert int(state.step) == 1


def _poisoned(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch whose loss, and so every gradient behind it, is not finite."""
    weights = batch["next_sentence_weights"].copy()
    weights[3] = np.inf
    return batch | {"next_sentence_weights": weights}


def test_p51_p58_nonfinite_updates_change_nothing_are_counted_and_stop_the_run():
    before, _ = _run([_batch(0)])
    after, reports = _run([_batch(0), _poisoned(_batch(1))])
    _close(
        dataclasses.replace(after, step=before.step, window=before.window, skipped=before.skipped),
        before,
        0,
    )
    assert reports[1]["skipped_in_row"] == reports[1]["skipped_total"] == 1

    again, reports = _run([_batch(0), _poisoned(_batch(1)), _batch(2)])
    assert (reports[2]["skipped_in_row"], reports[2]["skipped_total"]) == (0, 1)
    assert int(schedule_count(again.opt_state)) == 2
    assert float(reports[2]["learning_rate"]) == pytest.approx(5e-3)

    bad = _poisoned(_batch(1))
    stuck, reports = _run([_batch(0), bad, bad, _batch(2), _batch(3)])
    assert [r["skipped_in_row"] for r in reports] == [0, 1, 2, 3, 4]
    _close(stuck.params, before.params, 0)
    names = jax.tree.leaves(jax.tree_util.tree_leaves_with_path(before.params))
    assert 0 <= reports[-1]["skipped_tensor"] < len(names)


def test_p57_every_parameter_changes_in_one_step_also_the_pooler():
    params = _compiled(MODEL, 1, 1, 2)[1].params
    state, _ = _run([_batch(0)])
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(state.params), strict=True
    ):
        assert jnp.any(old != new), jax.tree_util.keystr(path)


def test_scan_and_remat_give_the_same_update():
    state, _ = _run([_batch(0), _batch(1)])
    for change in ({"scan_layers": True}, {"remat": "full"}, {"remat": "dots"}):
        other, _ = _run([_batch(0), _batch(1)], config=dataclasses.replace(MODEL, **change))
        _close(other, state, 1e-5)


def test_a_batch_that_the_devices_cannot_share_is_refused():
    batch = {name: value[:15] for name, value in _batch().items()}
    with pytest.raises(ValueError, match="15 rows cannot be split over 8 devices"):
        put_batch(batch, make_mesh(jax.devices()))
