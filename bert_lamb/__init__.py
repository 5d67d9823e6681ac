"""bert_lamb: pretrain BERT in JAX with large batches."""

__version__ = "0.1.0"
