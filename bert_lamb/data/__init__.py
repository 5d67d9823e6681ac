"""Data: text to unmasked records, and records to masked batches.

Folders, left to right:
    corpus: what a user names as a source of text, as documents. (sentences: documents divided.)
    tokenization: text to ids.
    examples: documents of sentences of ids to unmasked examples.
    records: examples on disk.
    building: drives all of that, over processes or machines, and reports what became of the text.
    batches: records to masked batches at train time.
    exchange: other programs' masked records, out and in. (inspection: records for the eye.)

Nothing here imports JAX, so that worker processes start fast; only batches imports Grain.
"""
