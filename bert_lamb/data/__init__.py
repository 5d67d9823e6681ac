"""Data: text to unmasked sentence-pair records, and records to masked batches.

Left to right: corpus and python_prose read documents, sentences and tokenizer turn them into ids,
examples pairs them, records stores the pairs, build drives all of that over a pool of processes and
report says what became of every token; at train time masking and pipeline make batches of them.

Nothing here imports JAX, so that worker processes start fast; only pipeline imports Grain.
"""
