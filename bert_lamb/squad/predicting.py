"""From start and end logits to answers, which are slices of the raw context.

References:
    Devlin et al., "BERT" (arXiv 1810.04805), sections 4.2 and 4.3; google-research/bert,
    run_squad.py, for the n-best list and its probabilities. That code looks at the 20 best starts
    and ends of a window only; here all spans of the allowed length are compared.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bert_lamb.data.errors import DataError
from bert_lamb.squad.dataset import Dataset, Question
from bert_lamb.squad.features import Features

# The odds of "no answer" where there is nothing to answer with: more than any logits can say.
CERTAINLY_NULL = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class PredictionOptions:
    """How answers are chosen. The defaults are those of the BERT paper's code.

    Attributes:
        n_best: length of the list of answers.
        max_answer_tokens: longest answer.
        null_threshold: of v2.0: "no answer" is chosen where its score is above that of the best
            span by more than this.
    """

    n_best: int = 20
    max_answer_tokens: int = 30
    null_threshold: float = 0.0

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            DataError: naming the one that is out of range.
        """
        for key in ("n_best", "max_answer_tokens"):
            if getattr(self, key) < 1:
                raise DataError(f"{key} = {getattr(self, key)}: expected at least 1")
        if math.isnan(self.null_threshold):
            raise DataError(f"null_threshold = {self.null_threshold}: expected a number")


@dataclass(frozen=True)
class Candidate:
    """An answer that was considered.

    Attributes:
        text: context[start:end], or "" for no answer.
        start: first character in the raw context; -1 for no answer.
        end: behind its last character; -1 for no answer.
        start_logit: of its first token, or of [CLS].
        end_logit: of its last token, or of [CLS].
        log_probability: natural logarithm, among the candidates of the list.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float
    log_probability: float = 0.0

    @property
    def score(self) -> float:
        """Sum of the two logits."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class Prediction:
    """What is answered to a question.

    Attributes:
        id: of the question.
        text: the answer, "" for none.
        candidates: the best ones, best first. In v2.0 "no answer" is always among them.
        best_span: the best candidate that is an answer; None where no span is allowed.
        null_odds: score of "no answer" less that of best_span; None in v1.1.
    """

    id: str
    text: str
    candidates: tuple[Candidate, ...]
    best_span: Candidate | None
    null_odds: float | None


def in_order(
    blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], features: Features
) -> tuple[np.ndarray, np.ndarray]:
    """Puts logits that came in any order, from any host, into the order of the features.

    Args:
        blocks: of (feature numbers [B], start logits [B, T], end logits [B, T]); rows of number -1
            filled up a batch and are left out.
        features: that the numbers count.

    Returns:
        Start and end logits. float32 [N, T]

    Raises:
        DataError: if a feature is missing, comes twice, or does not exist, or a block is of
            another shape.
    """
    shape = (len(features), features.options.seq_length)
    starts, ends = np.empty(shape, np.float32), np.empty(shape, np.float32)
    count = np.zeros(len(features), np.int64)
    for numbers, start, end in blocks:
        wanted = (len(numbers), shape[1])
        if np.shape(start) != wanted or np.shape(end) != wanted:
            raise DataError(
                f"logits of shape {np.shape(start)} and {np.shape(end)}: expected {wanted}"
            )
        used = np.asarray(numbers) >= 0
        inside = np.asarray(numbers)[used]
        if inside.max(initial=0) >= max(1, shape[0]):
            raise DataError(f"feature {inside.max()}: expected 0 to {shape[0] - 1}")
        starts[inside], ends[inside] = np.asarray(start)[used], np.asarray(end)[used]
        np.add.at(count, inside, 1)
    if (count != 1).any():
        wrong = int((count != 1).argmax())
        raise DataError(
            f"feature {wrong} came {count[wrong]} times, expected once; {int((count == 0).sum())} "
            f"of {len(count)} features are missing"
        )
    return starts, ends


def predict(
    dataset: Dataset,
    features: Features,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    options: PredictionOptions | None = None,
) -> Iterator[Prediction]:
    """Answers every question of a data set.

    A span is allowed if it lies in one window, has at most max_answer_tokens, and its first token
    has its maximal context there. Spans of the same text count once, with the best score.

    Args:
        dataset: its version decides whether "no answer" is a choice.
        features: its windows.
        start_logits: of each position of each row. floating [N, T]
        end_logits: the same for the last token. floating [N, T]
        options: lengths and threshold; the published ones by default.

    Raises:
        DataError: if the logits are of another shape, or are not numbers; names the question.
    """
    options = options or PredictionOptions()
    wanted = (len(features), features.options.seq_length)
    for name, logits in (("start_logits", start_logits), ("end_logits", end_logits)):
        if np.shape(logits) != wanted:
            raise DataError(f"{name} of shape {np.shape(logits)}: expected {wanted}")
    return (
        _predict_one(number, question, dataset, features, (start_logits, end_logits), options)
        for number, question in enumerate(dataset.questions)
    )


def _predict_one(
    number: int,
    question: Question,
    dataset: Dataset,
    features: Features,
    logits: tuple[np.ndarray, np.ndarray],
    options: PredictionOptions,
) -> Prediction:
    windows = slice(*features.bounds[number : number + 2])
    starts, ends = (np.asarray(part[windows], np.float64) for part in logits)
    spans = _Spans(features, number, starts, ends, options.max_answer_tokens, question.id)
    found = spans.best(options.n_best, dataset.context(question))
    best = found[0] if found else None
    if dataset.version == "1.1":
        answer = best.text if best else ""
        return Prediction(question.id, answer, _ranked(found, options.n_best), best, None)
    null = _null(starts, ends, question.id)
    odds = CERTAINLY_NULL if best is None else null.score - best.score
    answer = "" if best is None or odds > options.null_threshold else best.text
    return Prediction(question.id, answer, _ranked(found, options.n_best, null), best, odds)


def _null(starts: np.ndarray, ends: np.ndarray, id: str) -> Candidate:
    """Returns "no answer" with its lowest score in any window: one that sees an answer decides."""
    if not len(starts):
        return Candidate("", -1, -1, 0.0, 0.0)
    at_cls = starts[:, 0], ends[:, 0]
    if not np.isfinite(at_cls).all():
        raise DataError(f"question {id!r}: logits of [CLS] are NaN or infinite; expected numbers")
    window = int(np.add(*at_cls).argmin())
    return Candidate("", -1, -1, float(starts[window, 0]), float(ends[window, 0]))


def _ranked(
    spans: list[Candidate], n_best: int, null: Candidate | None = None
) -> tuple[Candidate, ...]:
    """Returns the n_best candidates with their probabilities; "no answer" if there are none."""
    everything = [*spans, *([null] if null else [])] or [Candidate("", -1, -1, 0.0, 0.0)]
    ranked = sorted(everything, key=lambda candidate: -candidate.score)[:n_best]
    if null and null not in ranked:
        ranked.append(null)
    scores = np.array([candidate.score for candidate in ranked])
    logs = scores - scores.max()
    logs -= np.log(np.exp(logs).sum())
    return tuple(
        Candidate(c.text, c.start, c.end, c.start_logit, c.end_logit, float(log))
        for c, log in zip(ranked, logs, strict=True)
    )


class _Spans:
    """All allowed spans of a question with their scores."""

    def __init__(
        self,
        features: Features,
        question: int,
        starts: np.ndarray,
        ends: np.ndarray,
        longest: int,
        id: str,
    ) -> None:
        first_feature = int(features.bounds[question])
        self._tokens = features.tokens(question)
        span = slice(first_feature, int(features.bounds[question + 1]))
        longest = min(longest, int(features.length[span].max(initial=1)))
        self._parts = []  # (start logits [n], end logits [n], first token) of each window
        scores = []
        for w, best_here in enumerate(features.max_context(question)):
            begin = int(features.offset[first_feature + w])
            inside = slice(begin, begin + len(best_here))
            first = int(features.first[first_feature + w])
            start, end = starts[w, inside], ends[w, inside]
            if not (start < np.inf).all() or not (end < np.inf).all():  # NaN is not below either
                raise DataError(f"question {id!r}: logits hold NaN or infinity; expected numbers")
            self._parts.append((start, end, first))
            scores.append(self._scores(start, end, first, best_here, longest).ravel())
        self._begins = np.cumsum([0, *map(len, scores)])
        self._longest = longest
        self._all = np.concatenate([*scores, np.empty(0)])

    def _scores(
        self, start: np.ndarray, end: np.ndarray, first: int, best_here: np.ndarray, longest: int
    ) -> np.ndarray:
        """Scores of the spans by first token and length; -inf where not allowed. [n, longest]."""
        size = len(start)
        last = np.arange(size)[:, None] + np.arange(longest)
        inside = np.minimum(last, size - 1)
        low = self._tokens.starts[first : first + size, None]
        high = self._tokens.ends[first : first + size][inside]
        allowed = (last < size) & best_here[:, None] & (low < high)
        return np.where(allowed, start[:, None] + end[inside], -np.inf)

    def best(self, number: int, context: str) -> list[Candidate]:
        """Returns the best spans of different texts, best first; fewer if there are no more."""
        found: dict[str, Candidate] = {}
        asked = 4 * number  # enough in most cases, as few texts repeat
        while True:
            for place in self._top(asked):
                candidate = self._candidate(int(place), context)
                found.setdefault(candidate.text, candidate)
                if len(found) == number:
                    return list(found.values())
            if asked >= len(self._all):
                return list(found.values())
            asked = len(self._all)

    def _top(self, number: int) -> np.ndarray:
        """Places of the best scores, best first, then by place; those not allowed left out."""
        scores, size = self._all, len(self._all)
        least = np.partition(scores, size - number)[size - number] if number < size else -np.inf
        places = np.flatnonzero((scores >= least) & (scores > -np.inf))
        return places[np.argsort(-scores[places], kind="stable")]

    def _candidate(self, place: int, context: str) -> Candidate:
        window = int(np.searchsorted(self._begins, place, side="right")) - 1
        start, end, first = self._parts[window]
        begin, extra = divmod(place - int(self._begins[window]), self._longest)
        last = begin + extra
        low = int(self._tokens.starts[first + begin])
        high = int(self._tokens.ends[first + last])
        return Candidate(context[low:high], low, high, float(start[begin]), float(end[last]))
