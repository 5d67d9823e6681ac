"""Scores do not depend on the mesh or the batch."""

from pathlib import Path

import jax
import pytest

from bert_lamb import model
from bert_lamb.config import MaskingConfig, ModelConfig, ParallelConfig
from bert_lamb.data.batches.pipeline import eval_batches
from bert_lamb.data.records.manifest import read_manifest
from bert_lamb.evaluation.heldout import HeldoutScore, build_evaluator, evaluate
from bert_lamb.model import pretraining
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training.start import lay_out

EXAMPLES = 103


def _score(records: Path, batch: int, parallel: ParallelConfig, devices: int) -> HeldoutScore:
    config = ModelConfig(
        vocab_size=read_manifest(records).vocab_size, num_layers=2, hidden_size=16, num_heads=2,
        intermediate_size=32, max_positions=16, vocab_multiple=8, scan_layers=True,
    )  # fmt: skip
    layout = lay_out(pretraining(config), make_mesh(parallel, jax.devices()[:devices]))
    params = jax.device_put(model.init(config, jax.random.key(0)), layout.shardings())
    batches = eval_batches(
        records, seq_length=16, max_predictions=3, batch=batch, masking=MaskingConfig(), seed=1,
        max_examples=EXAMPLES,
    )  # fmt: skip
    return evaluate(build_evaluator(config, layout), params, batches, 16)


@pytest.mark.parametrize(
    "parallel", [ParallelConfig(), ParallelConfig(fsdp=4), ParallelConfig(fsdp=2, tensor=2)]
)
def test_p35_103_examples_on_8_devices_score_as_one_by_one(records, parallel):
    folder = records[16] / "train"
    assert read_manifest(folder).num_examples >= EXAMPLES
    one = _score(folder, 1, ParallelConfig(), 1)
    eight = _score(folder, 8, parallel, 8)
    assert (eight.examples, eight.pairs) == (EXAMPLES, EXAMPLES)
    assert eight.masked_tokens == one.masked_tokens
    assert eight.mlm_loss == pytest.approx(one.mlm_loss, rel=1e-6)
    assert eight.mlm_accuracy == one.mlm_accuracy
    assert eight.nsp_loss == pytest.approx(one.nsp_loss, rel=1e-6)
