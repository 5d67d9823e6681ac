"""The update does not depend on how the batch is spread over devices and micro-batches."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.config import ParallelConfig
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training.phases import schedule_count
from bert_lamb.training.state import TrainState
from tests.steps import MODEL, B, P, Setting, assert_close, batch, compiled, run


@pytest.fixture(scope="module")
def one_device() -> tuple[TrainState, list[dict[str, float]]]:
    return run([batch(0), batch(1), batch(2)])


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.slow), 8])
def test_p60_p56_any_number_of_devices_gives_the_same_update(one_device, devices):
    """Uneven mask counts, dropout on: losses, gradients' norms and parameters agree."""
    state, reports = run([batch(0), batch(1), batch(2)], Setting(devices=devices))
    assert_close(state, one_device[0], 1e-5)
    for ours, theirs in zip(reports, one_device[1], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize(
    ("devices", "micro_batches"),
    [(1, 4), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 4), (4, 2)))],
)
def test_p61_p50_accumulation_equals_one_big_batch(one_device, devices, micro_batches):
    """Micro-batches are weighted by their masked tokens; the schedule counts updates."""
    state, reports = run(
        [batch(0), batch(1), batch(2)], Setting(devices=devices, micro_batches=micro_batches)
    )
    assert_close(state, one_device[0], 1e-5)
    assert int(schedule_count(state.opt_state)) == 3
    assert [r["learning_rate"] for r in reports] == [r["learning_rate"] for r in one_device[1]]


def test_p60_two_devices_with_one_and_nine_masked_tokens():
    masks = np.repeat([1, 9], B // 2)
    one, first = run([batch(3, masks)])
    two, second = run([batch(3, masks)], Setting(devices=2))
    assert second[0]["mlm_loss"] == pytest.approx(first[0]["mlm_loss"], rel=1e-6)
    assert second[0]["mlm_weight"] == 8 * 1 + 8 * 9
    assert_close(two, one, 1e-6)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_gradients_are_reduced_once_per_update_whatever_the_accumulation(micro_batches):
    step, _, _ = compiled(Setting(micro_batches=micro_batches))
    computations = re.split(r"\n(?=%|ENTRY)", step.as_text())
    reducing = {c.split()[0] for c in computations if " all-reduce(" in c}
    assert reducing == {"ENTRY"}  # none inside of a loop


@pytest.mark.parametrize("masks", [0, 37 % P])
def test_p26_p64_batches_with_no_and_with_many_masked_tokens_have_finite_losses(masks):
    state, reports = run([batch(4, masks)])
    assert all(np.isfinite(list(reports[0].values())))
    assert reports[0]["mlm_weight"] == masks * B
    assert reports[0]["skipped_total"] == 0
    assert int(state.step) == 1


def _poisoned(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch whose loss, and so every gradient behind it, is not finite."""
    weights = rows["next_sentence_weights"].copy()
    weights[3] = np.inf
    return rows | {"next_sentence_weights": weights}


def test_p51_p58_nonfinite_updates_change_nothing_are_counted_and_stop_the_run():
    before, _ = run([batch(0)])
    after, reports = run([batch(0), _poisoned(batch(1))])
    assert_close(
        dataclasses.replace(after, step=before.step, window=before.window, skipped=before.skipped),
        before,
        0,
    )
    assert reports[1]["skipped_in_row"] == reports[1]["skipped_total"] == 1

    again, reports = run([batch(0), _poisoned(batch(1)), batch(2)])
    assert (reports[2]["skipped_in_row"], reports[2]["skipped_total"]) == (0, 1)
    assert int(schedule_count(again.opt_state)) == 2
    assert float(reports[2]["learning_rate"]) == pytest.approx(5e-3)

    bad = _poisoned(batch(1))
    stuck, reports = run([batch(0), bad, bad, batch(2), batch(3)])
    assert [r["skipped_in_row"] for r in reports] == [0, 1, 2, 3, 4]
    assert_close(stuck.params, before.params, 0)
    names = jax.tree.leaves(jax.tree_util.tree_leaves_with_path(before.params))
    assert 0 <= reports[-1]["skipped_tensor"] < len(names)


def test_p57_every_parameter_changes_in_one_step_also_the_pooler():
    params = compiled(Setting(devices=1))[1].params
    state, _ = run([batch(0)])
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(state.params), strict=True
    ):
        assert jnp.any(old != new), jax.tree_util.keystr(path)


@pytest.mark.slow
def test_scan_and_remat_give_the_same_update():
    state, _ = run([batch(0), batch(1)])
    for change in ({"scan_layers": False}, {"remat": "full"}, {"remat": "dots"}):
        model = dataclasses.replace(MODEL, **change)
        other, _ = run([batch(0), batch(1)], Setting(devices=1, model=model))
        assert_close(other, state, 1e-5)


def test_a_batch_that_the_devices_cannot_share_is_refused():
    fifteen = {name: value[:15] for name, value in batch().items()}
    with pytest.raises(ValueError, match="15 rows cannot be split over 8 devices"):
        put_batch(fifteen, make_mesh(ParallelConfig()))
