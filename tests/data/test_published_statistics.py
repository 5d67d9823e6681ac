"""Our examples of a text beside those that Google's script made of it.

The published side is google-research/bert's sample text and the examples of its
create_pretraining_data.py (seed 12345, dupe factor 5, rows of 128 tokens with 20 predictions). One
build gives 60 examples that hang together (each pass over a document has one last row, say), so a
figure of the published build is compared with the spread of that figure over many builds of ours:
chi-square against our mean, and the share of our builds that are as far from it or farther. What a
predicted token is shown as is drawn for each by itself; there the plain test holds.

                                    published   mean of ours
    examples                               60           61.8
    label 0, 1                         28, 32     26.2, 35.6
    rows of   < 50 tokens                   8            4.3
             50 to  79                      7           10.7
             80 to 109                      9            9.0
            110 to 127                      3            4.8
                   128                     33           33.0
    rows of    < 8 predictions              8            4.8
              8 to  13                      9           14.7
             14 to  18                     10            8.8
             19 to  20                     33           33.5
    shown as [MASK]               722 (78.3%)          79.9%
          as a random token       104 (11.3%)          10.0%
          as it is                 96 (10.4%)          10.1%

"""

import json
import random
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from bert_lamb.config import MaskingConfig
from bert_lamb.data.batches.masking import Vocabulary, mask_batch
from bert_lamb.data.examples import (
    Documents,
    ExampleOptions,
    PairCounts,
    make_examples,
    pairs,
)
from bert_lamb.data.records.format import id_dtype, pack_all, unpack
from bert_lamb.data.tokenization import load_tokenizer

BUILDS, COPIES = 400, 5
CLS, SEP, PAD, MASK = 101, 102, 0, 103
LENGTH_BINS = [0, 50, 80, 110, 128, 129]
PREDICTION_BINS = [0, 8, 14, 19, 21]


@dataclass(frozen=True)
class Build:
    """The examples of one build.

    Attributes:
        labels: of next-sentence prediction. integers [n]
        lengths: tokens per row. integers [n]
        predictions: predicted tokens per row. integers [n]
        shown: predicted tokens shown as [MASK], as another token, as they are.
    """

    labels: np.ndarray
    lengths: np.ndarray
    predictions: np.ndarray
    shown: np.ndarray

    def histograms(self):
        return {
            "next sentence": np.bincount(self.labels, minlength=2),
            "row length": np.histogram(self.lengths, LENGTH_BINS)[0],
            "predictions": np.histogram(self.predictions, PREDICTION_BINS)[0],
        }


def shown_as(input_ids, positions, ids, weights):
    used = weights > 0
    shown = np.take_along_axis(input_ids, positions, axis=1)[used]
    kept = shown == ids[used]
    return np.array([(shown == MASK).sum(), (~kept & (shown != MASK)).sum(), kept.sum()])


@pytest.fixture(scope="module")
def published(shared):
    file = shared / "data/peer_golden/golden_sample_text_seed12345.json"
    examples = json.loads(file.read_text("utf-8"))
    column = {name: np.array([e[name] for e in examples]) for name in examples[0]}
    positions, ids = column["masked_lm_positions"], column["masked_lm_ids"]
    return Build(
        column["next_sentence_labels"][:, 0],
        column["input_mask"].sum(axis=1),
        column["masked_lm_weights"].astype(int).sum(axis=1),
        shown_as(column["input_ids"], positions, ids, column["masked_lm_weights"]),
    )


@pytest.fixture(scope="module")
def text(shared):
    """The sample text, as documents of sentences of ids, and the vocabulary."""
    tokenizer = load_tokenizer(shared / "data/vocab/bert-base-uncased-vocab.txt")
    sample = (shared / "data/peer_golden/sample_text.txt").read_text("utf-8")
    documents = [
        [ids for ids in tokenizer.encode_batch(document.split("\n")) if ids]
        for document in sample.split("\n\n")
    ]
    vocabulary = Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids)
    return Documents.from_lists(documents, range(len(documents)), dtype=np.uint16), vocabulary


def our_builds(text, short_seq_prob=0.1, config=MaskingConfig(), max_predictions=20):  # noqa: B008
    documents, vocabulary = text
    options = ExampleOptions("nsp", 128, short_seq_prob)
    dtype = id_dtype(vocabulary.size)
    builds = []
    for seed in range(BUILDS):
        rng, records = random.Random(seed), []
        for _ in range(COPIES):
            examples = make_examples(documents, options, rng, PairCounts(), sep_id=SEP)
            records += pack_all(examples, dtype)
        rows = unpack(records, dtype, 128, cls_id=CLS, sep_id=SEP, pad_id=PAD)
        masked = mask_batch(
            rows.tokens,
            epoch=np.zeros(len(records), int),
            example=np.arange(len(records)),
            seed=seed,
            max_predictions=max_predictions,
            vocabulary=vocabulary,
            config=config,
        )
        shown = shown_as(masked.input_ids, masked.positions, masked.ids, masked.weights)
        predictions = masked.weights.sum(axis=1).astype(int)
        builds.append(Build(rows.labels, rows.lengths, predictions, shown))
    return builds


@pytest.fixture(scope="module")
def ours(text):
    return our_builds(text)


def spread_p(published, builds, figure):
    """The share of our builds whose histogram is as far from our mean as the published one."""
    histograms = np.array([build.histograms()[figure] for build in builds], float)
    mean = np.maximum(histograms.mean(axis=0), 1 / len(builds))  # of a bin that ours never reach

    def chi_square(histogram):
        return ((histogram - mean) ** 2 / mean).sum(axis=-1)

    far = chi_square(histograms) >= chi_square(published.histograms()[figure])
    return (1 + far.sum()) / (1 + len(builds))


def shares_p(published, builds):
    """Chi-square of the published counts of [MASK], random and kept tokens, given our shares."""
    shown = sum(build.shown for build in builds)
    return stats.chisquare(published.shown, published.shown.sum() * shown / shown.sum()).pvalue


FIGURES = ["next sentence", "row length", "predictions"]


@pytest.mark.parametrize("figure", FIGURES)
def test_published_rows_are_one_build_of_many(published, ours, figure):
    assert spread_p(published, ours, figure) > 0.01


def test_published_masks_are_shown_as_ours(published, ours):
    assert shares_p(published, ours) > 0.01


def test_number_of_examples_is_a_usual_one(published, ours):
    low, high = np.quantile([len(build.labels) for build in ours], [0.005, 0.995])
    assert low <= len(published.labels) <= high


def test_predictions_of_a_published_row_are_those_but_for_its_special_tokens(published):
    """Google's rule counts [CLS] and two [SEP] among the tokens of a row, ours does not."""
    ordinary = published.lengths - 3
    theirs, ours = (np.clip(np.rint(0.15 * n), 1, 20) for n in (published.lengths, ordinary))
    assert np.array_equal(published.predictions, theirs)
    assert set((theirs - ours).tolist()) == {0, 1}
    assert (theirs != ours).sum() == 7


# The same comparisons find a wrong rule.


@pytest.mark.parametrize(
    ("figure", "rule"),
    [
        ("row length", {"short_seq_prob": 1.0}),
        ("predictions", {"config": MaskingConfig(probability=0.12)}),
        ("predictions", {"max_predictions": 18}),
    ],
)
def test_wrong_rules_for_rows_are_found(published, text, figure, rule):
    assert spread_p(published, our_builds(text, **rule), figure) < 0.01


def test_wrong_share_of_random_segments_is_found(published, text, monkeypatch):
    monkeypatch.setattr(pairs, "RANDOM_NEXT_PROB", 0.9)
    assert spread_p(published, our_builds(text), "next sentence") < 0.01


@pytest.mark.parametrize(("mask_share", "random_share"), [(0.7, 0.2), (0.7, 0.1), (0.85, 0.1)])
def test_wrong_shares_of_masks_are_found(published, text, mask_share, random_share):
    config = MaskingConfig(mask_share=mask_share, random_share=random_share)
    assert shares_p(published, our_builds(text, config=config)) < 0.01
