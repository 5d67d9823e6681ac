"""Documents of sentences of ids to unmasked examples."""

from bert_lamb.data.examples.documents import Documents
from bert_lamb.data.examples.example import Example, Examples, PairCounts
from bert_lamb.data.examples.make import ExampleOptions, check_seq_length, make_examples

__all__ = [
    "Documents",
    "Example",
    "ExampleOptions",
    "Examples",
    "PairCounts",
    "check_seq_length",
    "make_examples",
]
