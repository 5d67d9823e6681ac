"""BERT as pure functions, `init`, `apply` and `encode`; its heads, losses and objectives."""

from bert_lamb.model.axes import parameter_axes
from bert_lamb.model.bert import Batch, LayerHook, padded_vocab
from bert_lamb.model.cost import count_params, encoder_flops, flops_per_row
from bert_lamb.model.functional import (
    Params,
    apply,
    encode,
    init,
    stacked_axes,
    weight_dtypes,
)
from bert_lamb.model.heads import (
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    Maker,
    PretrainingOutput,
    SpanOutput,
    sequence_classifier,
)
from bert_lamb.model.losses import PretrainingSums, pretraining_sums
from bert_lamb.model.objectives import (
    Objective,
    classification,
    pretraining,
    question_answering,
    regression,
)

__all__ = [
    "Batch",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertModel",
    "LayerHook",
    "Maker",
    "Objective",
    "Params",
    "PretrainingOutput",
    "PretrainingSums",
    "SpanOutput",
    "apply",
    "classification",
    "count_params",
    "encode",
    "encoder_flops",
    "flops_per_row",
    "init",
    "padded_vocab",
    "parameter_axes",
    "pretraining",
    "pretraining_sums",
    "question_answering",
    "regression",
    "sequence_classifier",
    "stacked_axes",
    "weight_dtypes",
]
