"""What a model should learn from each window, and which answers are out of its reach."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from bert_lamb.squad.alignment import Tokens
from bert_lamb.squad.dataset import Answer, Dataset, shown
from bert_lamb.squad.features import Features

NO_TOKEN = "holds only characters that the tokenizer removes"
IN_NO_WINDOW = "in no window from end to end"


@dataclass(frozen=True)
class Labels:
    """Spans to learn, by feature, and the answers that are lost.

    Attributes:
        start: position in the row of the first token of the answer, 0 ([CLS]) where the window
            does not hold an answer from end to end. int32 [N]
        end: position of its last token, or 0. int32 [N]
        inside: whether the window holds an answer. bool [N]
        trainable: whether the feature may be learned from: not where a question has answers of
            which none can be used, nor where it is not labelled. bool [N]
        answers: answers in the data set.
        lost: ids of questions by reason, one for each answer that no window teaches.
        inexact: ids, one for each answer whose tokens hold more text than the answer, because it
            begins or ends inside of a token.
        unteachable: ids of questions with answers, all of them lost.
        token_lengths: tokens of each answer that has some. int32 [answers]
    """

    start: np.ndarray
    end: np.ndarray
    inside: np.ndarray
    trainable: np.ndarray
    answers: int
    lost: dict[str, tuple[str, ...]]
    inexact: tuple[str, ...]
    unteachable: tuple[str, ...]
    token_lengths: np.ndarray

    def describe(self, max_answer_tokens: int) -> str:
        """Returns counts of what is lost and why, in lines.

        Args:
            max_answer_tokens: the longest answer that a prediction may give.
        """
        lost = sum(map(len, self.lost.values()))
        kept = self.answers - lost
        share = kept / max(1, self.answers)
        lines = [f"{kept:,} of {self.answers:,} answers ({share:.3%}) are inside of a window"]
        lines += [f"{len(ids):,} lost: {why}: {shown(ids)}" for why, ids in self.lost.items()]
        if self.unteachable:
            lines.append(
                f"{len(self.unteachable):,} questions with answers have none to learn from: "
                f"{shown(self.unteachable)}"
            )
        if self.inexact:
            lines.append(
                f"{len(self.inexact):,} answers begin or end inside of a token: "
                f"{shown(self.inexact)}"
            )
        long = int((self.token_lengths > max_answer_tokens).sum())
        if long:
            lines.append(
                f"{long:,} answers are longer than {max_answer_tokens} tokens, which predictions "
                "do not give"
            )
        return "\n".join(lines)


@dataclass
class _Losses:
    lost: dict[str, list[str]]
    inexact: list[str]
    unteachable: list[str]
    lengths: list[int]


def make_labels(dataset: Dataset, features: Features) -> Labels:
    """Finds the answers of a data set in its windows.

    Annotators may disagree: a window learns the span that most of them gave of those it holds from
    end to end, the first one among equals.

    Args:
        dataset: with answers.
        features: its windows.
    """
    start, end = np.zeros(len(features), np.int32), np.zeros(len(features), np.int32)
    trainable = np.ones(len(features), bool)
    losses = _Losses({}, [], [], [])
    for number, question in enumerate(dataset.questions):
        tokens, context = features.tokens(number), dataset.context(question)
        windows = range(*features.bounds[number : number + 2])
        spans = Counter[tuple[int, int]]()
        for answer in question.answers:
            span = _span(answer, tokens, context, question.id, losses)
            if span and not any(_holds(features, f, span) for f in windows):
                losses.lost.setdefault(IN_NO_WINDOW, []).append(question.id)
            elif span:
                spans[span] += 1
        for f in windows:
            taught = next((s for s, _ in spans.most_common() if _holds(features, f, s)), None)
            if taught:
                start[f], end[f] = np.array(taught) - features.first[f] + features.offset[f]
        if not question.labelled or (question.answers and not spans):
            trainable[slice(*features.bounds[number : number + 2])] = False
        if question.answers and not spans:
            losses.unteachable.append(question.id)
    return Labels(
        start,
        end,
        end > 0,
        trainable,
        sum(len(question.answers) for question in dataset.questions),
        {why: tuple(ids) for why, ids in sorted(losses.lost.items())},
        tuple(losses.inexact),
        tuple(losses.unteachable),
        np.array(losses.lengths, np.int32),
    )


def _span(
    answer: Answer, tokens: Tokens, context: str, id: str, losses: _Losses
) -> tuple[int, int] | None:
    """Returns the first and the last token of an answer; files it as lost if it has none."""
    if answer.start < 0:
        losses.lost.setdefault(answer.fault, []).append(id)
        return None
    span = tokens.cover(answer.start, answer.start + len(answer.text))
    if span is None:
        losses.lost.setdefault(NO_TOKEN, []).append(id)
        return None
    losses.lengths.append(span[1] - span[0] + 1)
    if context[tokens.starts[span[0]] : tokens.ends[span[1]]] != answer.text:
        losses.inexact.append(id)
    return span


def _holds(features: Features, f: int, span: tuple[int, int]) -> bool:
    first = int(features.first[f])
    return first <= span[0] and span[1] < first + int(features.length[f])
