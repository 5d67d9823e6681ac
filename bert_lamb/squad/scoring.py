"""Exact match and F1 of one answer, by the rules of the official evaluation.

The rules are few, but a comparable score needs every one of them as it is: ASCII punctuation only
is removed, the articles go after it, and v1.1 and v2.0 differ in what two empty answers score.

References:
    Rajpurkar et al., "SQuAD" (arXiv 1606.05250), section 6; "Know What You Don't Know" (arXiv
    1806.03822), section 6.1; evaluate-v1.1.py and evaluate-v2.0.py of the SQuAD explorer.
"""

import re
import string
from collections import Counter

from bert_lamb.squad.dataset import Question, Version

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Lower case without ASCII punctuation and English articles, words divided by one space."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", plain).split())


def exact_match(prediction: str, answer: str) -> float:
    """Returns 1.0 if the two are equal once they are normalized, otherwise 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str, *, empty_pair: float = 1.0) -> float:
    """Returns the harmonic mean of precision and recall of the words, counted as a bag.

    Args:
        prediction: a text.
        answer: the text it should be.
        empty_pair: what two answers without any word score: 1 in v2.0, 0 in v1.1.
    """
    words, wanted = normalize_answer(prediction).split(), normalize_answer(answer).split()
    if not words and not wanted:
        return empty_pair
    common = sum((Counter(words) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score_answer(prediction: str, question: Question, version: Version) -> tuple[float, float]:
    """Returns (exact match, F1) of a prediction, each the best over the annotators' answers.

    In v2.0 the right answer to a question without one is "", and answers that are nothing once they
    are normalized do not count.

    Args:
        prediction: a text, "" for no answer.
        question: with its answers.
        version: whose rules are used.
    """
    texts = {answer.text for answer in question.answers}
    if version == "2.0":
        texts = {text for text in texts if normalize_answer(text)} or {""}
    empty_pair = 1.0 if version == "2.0" else 0.0
    return (
        max(exact_match(prediction, text) for text in texts),
        max(f1(prediction, text, empty_pair=empty_pair) for text in texts),
    )
