"""The fine-tuning of `bert-lamb squad train` in PyTorch and transformers, for comparison.

Same rows, same order of the data, same schedule and AdamW; the model, its gradients and the update
are transformers' and PyTorch's own. Run by scripts/compare_finetuning.py.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers


def build(folder: str, dropout: tuple[float, float], seed: int) -> Any:
    """Reads an encoder with a new head, whose draw depends on `seed` alone.

    Args:
        folder: of a model in Hugging Face's form.
        dropout: of hidden states and of attention.
        seed: of the head and of dropout.
    """
    torch.manual_seed(seed)
    return transformers.BertForQuestionAnswering.from_pretrained(
        folder,
        hidden_dropout_prob=dropout[0],
        attention_probs_dropout_prob=dropout[1],
        attn_implementation="sdpa",
    )


def make_optimizer(model: Any, weight_decay: float, b: tuple[float, float], eps: float) -> Any:
    """Returns AdamW that leaves biases and norms without decay."""
    decays = [p for n, p in model.named_parameters() if not _is_plain(n)]
    others = [p for n, p in model.named_parameters() if _is_plain(n)]
    groups = [
        {"params": decays, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=b, eps=eps)


def train(
    model: Any, optimizer: Any, batches: Iterator[dict[str, np.ndarray]], rates: list[float],
    clip_norm: float,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Takes a step for each of `rates`.

    Returns:
        The loss of each step, and its wall seconds.
    """
    model.train()
    losses, seconds = [], []
    for rate, batch in zip(rates, batches, strict=False):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model(
            **_inputs(batch),
            start_positions=torch.from_numpy(batch["start"]).long(),
            end_positions=torch.from_numpy(batch["end"]).long(),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
        if not math.isfinite(losses[-1]):
            raise RuntimeError(f"step {len(losses)}: loss {losses[-1]}")
    return losses, seconds


def logits(model: Any, batch: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns start and end logits, float32 [B, T] each."""
    model.eval()
    with torch.no_grad():
        output = model(**_inputs(batch))
    return output.start_logits.numpy(), output.end_logits.numpy()


def _inputs(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "input_ids": torch.from_numpy(batch["input_ids"]).long(),
        "attention_mask": torch.from_numpy(batch["input_mask"]),
        "token_type_ids": torch.from_numpy(batch["segment_ids"]).long(),
    }


def _is_plain(name: str) -> bool:
    return name.endswith(".bias") or "LayerNorm" in name
