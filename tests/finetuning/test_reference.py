"""Fine-tuning against PyTorch and transformers: same start, same rows, same losses step by step."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_lamb.config import ParallelConfig
from bert_lamb.finetuning import squad
from bert_lamb.parallel.batches import put_batch
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.training.checkpoint import Checkpoints
from bert_lamb.training.phases import schedule
from bert_lamb.training.program import compile_step
from bert_lamb.training.start import begin, lay_out
from tests.finetuning.conftest import squad_config

torch = pytest.importorskip("torch", reason="the reference of the parity tests: [parity] extra")
transformers = pytest.importorskip("transformers", reason="the reference: [parity] extra")

from tests.reference import finetune_torch  # noqa: E402  (needs torch)

STEPS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, pretrained: Path) -> Path:
    """A small random BERT in Hugging Face's form, with the vocabulary of the pretrained run."""
    from bert_lamb.data.tokenization import load_tokenizer

    tokenizer = load_tokenizer(pretrained)
    tokens = [tokenizer.token(i) for i in range(tokenizer.vocab_size)]
    path = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    shape = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(shape).save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return path


def test_losses_follow_those_of_pytorch(settings: dict[str, Any], folder: Path, tmp_path: Path):
    changes = {
        "init_from": str(folder), "epochs": STEPS / 10,
        "model": {"hidden_dropout": 0.0, "attention_dropout": 0.0, "scan_layers": True},
        "optimizer": {"name": "adamw", "weight_decay": 0.1, "clip_norm": 0.5, "eps": 1e-4},
    }  # fmt: skip
    task, _ = squad.prepare(squad_config(settings, **changes), tmp_path)
    assert task.run.total_steps == STEPS
    mesh = make_mesh(ParallelConfig(), jax.devices()[:1])
    layout = lay_out(task.objective, mesh)
    with Checkpoints(tmp_path) as checkpoints:
        state, origin = begin(task.run, task, checkpoints, layout)
    assert "drawn: span" in origin
    rows = np.arange(task.run.phases[0].global_batch)
    stream = task.batches(0, 0, rows)
    batches = [next(stream) for _ in range(STEPS)]

    model = finetune_torch.build(str(folder), (0.0, 0.0), seed=0)
    # transformers holds the row of [PAD] still; here, as in the published code, it learns.
    model.bert.embeddings.word_embeddings.padding_idx = None
    head = jax.tree.map(np.asarray, state.params["span"])
    with torch.no_grad():
        model.qa_outputs.weight.copy_(torch.from_numpy(head["kernel"].T.copy()))
        model.qa_outputs.bias.copy_(torch.from_numpy(head["bias"].copy()))
    optimizer = finetune_torch.make_optimizer(model, 0.1, (0.9, 0.999), 1e-4)
    rates = np.asarray(schedule(task.run.phases[0])(jnp.arange(STEPS))).tolist()
    theirs, _ = finetune_torch.train(model, optimizer, iter(batches), rates, clip_norm=0.5)

    with jax.default_matmul_precision("highest"):
        step = compile_step(task.run, task.objective, 0, layout, state, put_batch(batches[0], mesh))
    ours = []
    for batch in batches:
        state, report = step(state, put_batch(batch, mesh))
        sums = {name: float(report[name]) for name in ("loss", "weight", "correct")}
        ours.append(task.objective.figures(sums)["loss"])
    assert theirs[0] - theirs[-1] > 0.1  # it moves
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
