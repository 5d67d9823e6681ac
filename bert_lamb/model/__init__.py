"""BERT for pretraining as pure functions: `init`, `apply`, `encode`, and its losses."""

from bert_lamb.model.bert import BertForPreTraining, PretrainingOutput, padded_vocab
from bert_lamb.model.cost import count_params, flops_per_row
from bert_lamb.model.functional import Batch, Params, apply, encode, init, stacked_axes
from bert_lamb.model.losses import PretrainingSums, pretraining_sums

__all__ = [
    "Batch",
    "BertForPreTraining",
    "Params",
    "PretrainingOutput",
    "PretrainingSums",
    "apply",
    "count_params",
    "encode",
    "flops_per_row",
    "init",
    "padded_vocab",
    "pretraining_sums",
    "stacked_axes",
]
