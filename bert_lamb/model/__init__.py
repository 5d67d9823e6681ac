"""BERT for pretraining as pure functions: `init`, `apply`, `encode`, and its losses."""

from bert_lamb.model.axes import parameter_axes
from bert_lamb.model.bert import BertForPreTraining, PretrainingOutput, padded_vocab
from bert_lamb.model.cost import count_params, flops_per_row
from bert_lamb.model.functional import (
    Batch,
    LayerHook,
    Params,
    apply,
    encode,
    init,
    stacked_axes,
    weight_dtypes,
)
from bert_lamb.model.losses import PretrainingSums, pretraining_sums

__all__ = [
    "Batch",
    "BertForPreTraining",
    "LayerHook",
    "Params",
    "PretrainingOutput",
    "PretrainingSums",
    "apply",
    "count_params",
    "encode",
    "flops_per_row",
    "init",
    "padded_vocab",
    "parameter_axes",
    "pretraining_sums",
    "stacked_axes",
    "weight_dtypes",
]
