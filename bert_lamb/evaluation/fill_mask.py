"""Guesses for the [MASK] tokens of a sentence."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from bert_lamb import model
from bert_lamb.config import ModelConfig
from bert_lamb.data.errors import DataError
from bert_lamb.data.tokenization import Tokenizer

Params = dict


@dataclass(frozen=True)
class Guess:
    """One token and the probability that the model gives it."""

    token: str
    probability: float


def fill_mask(
    config: ModelConfig, params: Params, tokenizer: Tokenizer, text: str, *, top: int = 5
) -> list[list[Guess]]:
    """Returns, for each [MASK] in `text`, the `top` most probable tokens, best first.

    Args:
        config: of the model.
        params: of the model.
        tokenizer: with which the model was trained.
        text: a sentence that contains the word [MASK] at least once.
        top: number of guesses per mask.

    Raises:
        DataError: if `top` is less than 1, or `text` has no [MASK] or is longer than the model's
            positions.
    """
    if top < 1:
        raise DataError(f"top = {top}: expected at least 1 guess")
    ids = [tokenizer.cls_id, *tokenizer.encode_with_masks(text), tokenizer.sep_id]
    positions = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
    if not positions:
        raise DataError(f"{text!r} has no [MASK]; put one where a word is to be guessed")
    if len(ids) > config.max_positions:
        raise DataError(
            f"{len(ids)} tokens, but the model has {config.max_positions} positions; "
            "shorten the text"
        )
    # A multiple of 32, so that sentences of like length share one compiled program.
    length = min(-(-len(ids) // 32) * 32, config.max_positions)
    row = np.full(length, tokenizer.pad_id, np.int32)
    row[: len(ids)] = ids
    batch = {
        "input_ids": row[None],
        "input_mask": (np.arange(length) < len(ids)).astype(np.int32)[None],
        "segment_ids": np.zeros((1, length), np.int32),
        "masked_lm_positions": np.asarray(positions, np.int32)[None],
        "row": np.zeros(1, np.int32),
    }
    logits = _logits(config, params, batch)[0, :, : config.vocab_size]
    probabilities = np.asarray(jax.nn.softmax(logits, axis=-1))
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
    return [
        [Guess(tokenizer.token(int(i)), float(p[i])) for i in order]
        for p, order in zip(probabilities, best, strict=True)
    ]


def _logits(config: ModelConfig, params: Params, batch: dict[str, np.ndarray]) -> jax.Array:
    forward = jax.jit(lambda p, b: model.apply(config, p, b).mlm_logits)
    return forward(params, jax.tree.map(jnp.asarray, batch))
