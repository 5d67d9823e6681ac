"""The model against Hugging Face's BertForPreTraining in PyTorch: same weights, same numbers."""

import jax
import numpy as np
import pytest

from bert_lamb.config import PRESETS, ModelConfig
from bert_lamb.model import apply, encode, pretraining_sums

torch = pytest.importorskip("torch", reason="the reference of the parity tests: [parity] extra")
pytest.importorskip("transformers", reason="the reference of the parity tests: [parity] extra")

from tests.reference import hf_bert_weights  # noqa: E402  (needs torch)

# A small vocabulary: the reference computes logits at all positions, which proves nothing more.
VOCAB = 1000
OUTPUT_ATOL = 1e-5
GRADIENT_RTOL = 1e-4  # of the largest entry of the same tensor
# The gradient of a key bias is 0 in exact arithmetic (softmax ignores a shift); what both sides
# return is rounding, so it needs an absolute floor.
GRADIENT_ATOL = 1e-7


SCAN = {"scan_layers": True}  # unrolled, BERT-base would mostly be compiling


@pytest.mark.parametrize(
    ("size", "T", "changes"),
    [
        ("tiny", 128, {}),
        ("tiny", 128, {"activation": "gelu_tanh"}),
        ("tiny", 512, {}),
        ("base", 128, SCAN),
        pytest.param("base", 512, SCAN, marks=pytest.mark.slow),
    ],
    ids=["tiny-128", "tiny-128-tanh", "tiny-512", "base-128", "base-512"],
)
def test_outputs_and_gradients_equal_the_reference(size, T, changes, make_batch):
    config = ModelConfig(vocab_size=VOCAB, **PRESETS[size], **changes)
    batch = make_batch(config, B=2, T=T, P=20 if T == 128 else 76)
    model = hf_bert_weights.reference_model(config, seed=1)
    params = hf_bert_weights.as_params(_numpy(dict(model.named_parameters())), config)
    expected, expected_gradients = _reference_step(model, batch)
    expected_gradients = hf_bert_weights.as_params(expected_gradients, config)

    def loss(params, batch):
        output = apply(config, params, batch)
        sums = pretraining_sums(output, batch)
        total = sums.mlm_loss / sums.mlm_weight + sums.nsp_loss / sums.nsp_weight
        sequence, pooled = encode(config, params, batch)
        return total, {
            "loss": total,
            "mlm_logits": output.mlm_logits[..., :VOCAB],
            "nsp_logits": output.nsp_logits,
            "sequence": sequence,
            "pooled": pooled,
        }

    with jax.default_matmul_precision("highest"):
        gradients, outputs = jax.jit(jax.grad(loss, has_aux=True))(params, batch)

    for name, value in expected.items():
        error = np.max(np.abs(np.asarray(outputs[name]) - value))
        print(f"{name}: {error:.1e}")  # pytest -s shows what was observed
        assert error <= OUTPUT_ATOL, f"{name}: {error:.2e} off"

    leaves = jax.tree_util.tree_leaves_with_path(gradients)
    for (path, ours), theirs in zip(leaves, jax.tree.leaves(expected_gradients), strict=True):
        name, scale = jax.tree_util.keystr(path), np.max(np.abs(theirs))
        error = np.max(np.abs(np.asarray(ours) - theirs))
        print(f"gradient{name}: {error:.1e} of {scale:.1e}")
        assert error <= GRADIENT_RTOL * scale + GRADIENT_ATOL, f"{name}: {error:.2e} of {scale:.2e}"


def _reference_step(model, batch):
    """Returns the reference's outputs by our names, and its gradients by its own."""
    tensor = {key: torch.from_numpy(np.array(value)) for key, value in batch.items()}
    positions = tensor["masked_lm_positions"].long()
    rows = torch.arange(positions.shape[0])[:, None]
    labels = torch.full(tensor["input_ids"].shape, -100)
    kept = tensor["masked_lm_weights"] > 0
    labels[rows.expand_as(positions)[kept], positions[kept]] = tensor["masked_lm_ids"].long()[kept]
    output = model(
        input_ids=tensor["input_ids"].long(),
        attention_mask=tensor["input_mask"],
        token_type_ids=tensor["segment_ids"].long(),
        labels=labels,
        next_sentence_label=tensor["next_sentence_labels"].long(),
        output_hidden_states=True,
    )
    output.loss.backward()
    sequence = output.hidden_states[-1]
    outputs = {
        "loss": output.loss,
        "mlm_logits": output.prediction_logits[rows, positions],
        "nsp_logits": output.seq_relationship_logits,
        "sequence": sequence,
        "pooled": model.bert.pooler(sequence),
    }
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return _numpy(outputs), _numpy(gradients)


def _numpy(tensors):
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}
