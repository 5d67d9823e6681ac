"""SQuAD: questions answered by a slice of a text; read, cut into windows, predicted, scored.

Everything here is plain NumPy, without JAX.

Modules:
    reading, tfds, answers, dataset: data sets, checked early.
    alignment: tokens with their places in the raw text.
    windows, labels: fixed rows of a question and a stretch of its context.
    predicting, writing: answers from start and end logits; the official files.
    scoring, evaluating, thresholds, curves: the official metrics.
"""
