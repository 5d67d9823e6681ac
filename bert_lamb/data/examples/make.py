"""The kinds of examples behind one function."""

import random
from dataclasses import dataclass
from typing import Literal, get_args

from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.documents import Documents
from bert_lamb.data.examples.example import Examples, PairCounts
from bert_lamb.data.examples.pairs import next_sentence_pairs, sentence_order_pairs
from bert_lamb.data.examples.single import single_segments

Kind = Literal["nsp", "sop", "single"]
MIN_SEQ_LENGTH = 8
_SHORT_SEQ_PROB: dict[str, float] = {"nsp": 0.1, "sop": 0.1, "single": 0.0}


@dataclass(frozen=True)
class ExampleOptions:
    """What examples to make.

    Attributes:
        kind: "nsp" for next-sentence pairs (BERT), "sop" for sentence-order pairs (ALBERT),
            "single" for rows of one segment (RoBERTa).
        seq_length: tokens per row T, special tokens included.
        short_seq_prob: share of short examples: of the documents cut into shorter pairs, or of the
            rows that end early. None takes the published 0.1 for pairs and 0 for "single".
        cross_documents: "single" only: fill rows across documents, with a [SEP] between them.

    Raises:
        DataError: for a value out of range, or options that do not go together.
    """

    kind: Kind = "nsp"
    seq_length: int = 128
    short_seq_prob: float | None = None
    cross_documents: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DataError(f"kind = {self.kind!r}: expected {', '.join(get_args(Kind))}")
        check_seq_length(self.seq_length)
        if self.short_seq_prob is not None and not 0 <= self.short_seq_prob <= 1:
            raise DataError(f"short_seq_prob = {self.short_seq_prob}: expected a share in [0, 1]")
        if self.cross_documents and self.kind != "single":
            raise DataError(
                f"cross_documents = True with kind = {self.kind!r}: only rows of one segment can "
                'cross documents; drop it, or make examples of kind "single"'
            )

    @property
    def resolved_short_seq_prob(self) -> float:
        """`short_seq_prob`, or the default of the kind."""
        return _SHORT_SEQ_PROB[self.kind] if self.short_seq_prob is None else self.short_seq_prob

    @property
    def min_documents(self) -> int:
        """Documents with text, donors included, without which no example can be made."""
        return 2 if self.kind == "nsp" else 1


def make_examples(
    documents: Documents,
    options: ExampleOptions,
    rng: random.Random,
    counts: PairCounts,
    *,
    sep_id: int,
) -> Examples:
    """Makes the examples of a group of documents.

    The result depends on the arguments only; of `rng`, on its state.

    Args:
        documents: the text.
        options: what to make.
        rng: source of all choices.
        counts: added to. Over all examples, `written` + `truncated` + `dropped` grows by the tokens
            of the documents, donors not counted.
        sep_id: id of [SEP], for rows that cross documents.

    Returns:
        Examples in the order of the text; none if the documents hold no token.

    Raises:
        DataError: for "nsp" if there is text of one document only.
    """
    prob = options.resolved_short_seq_prob
    if options.kind == "nsp":
        return next_sentence_pairs(documents, options.seq_length, prob, rng, counts)
    if options.kind == "sop":
        return sentence_order_pairs(documents, options.seq_length, prob, rng, counts)
    return single_segments(
        documents,
        options.seq_length,
        prob,
        rng,
        counts,
        cross_documents=options.cross_documents,
        sep_id=sep_id,
    )


def check_seq_length(seq_length: int) -> None:
    """Raises DataError if a row of `seq_length` tokens cannot hold a pair."""
    if not MIN_SEQ_LENGTH <= seq_length < 2**16:
        raise DataError(
            f"seq_length = {seq_length}: expected {MIN_SEQ_LENGTH} to {2**16 - 1} tokens (3 are "
            "taken by [CLS] and two [SEP])"
        )
