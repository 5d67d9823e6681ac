"""The rules of the SQuAD papers and scripts, read once more: slow, plain, one question at a time.

Shares nothing with bert_lamb.squad.
"""

import math

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def words(text: str) -> list[str]:
    kept = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return [word for word in _without_articles(kept).split() if word]


def _without_articles(text: str) -> str:
    """Takes out each whole word that is an article; a word is of letters, digits and _."""
    result, run = "", ""
    for c in [*text, ""]:
        if c and (c.isalnum() or c == "_"):
            run += c
            continue
        result += (" " if run in ("a", "an", "the") else run) + c
        run = ""
    return result


def exact(prediction: str, answer: str) -> float:
    return 1.0 if words(prediction) == words(answer) else 0.0


def overlap_f1(prediction: str, answer: str, version: str) -> float:
    found, wanted = words(prediction), words(answer)
    if not found and not wanted:
        return 1.0 if version == "2.0" else 0.0
    left, common = list(wanted), 0
    for word in found:
        if word in left:
            left.remove(word)
            common += 1
    # 2PR / (P + R) with P = c / n and R = c / m
    return 2 * common / (len(found) + len(wanted))


def question_scores(prediction: str, answers: list[str], version: str) -> tuple[float, float]:
    if version == "2.0":
        answers = [a for a in answers if words(a)] or [""]
    best_exact = max(exact(prediction, a) for a in answers)
    return best_exact, max(overlap_f1(prediction, a, version) for a in answers)


def scores_v1(gold: dict[str, list[str]], predictions: dict[str, str]) -> dict[str, float]:
    total_exact = total_f1 = 0.0
    for id, answers in gold.items():
        if id in predictions:
            e, f = question_scores(predictions[id], answers, "1.1")
            total_exact, total_f1 = total_exact + e, total_f1 + f
    return {"exact_match": 100 * total_exact / len(gold), "f1": 100 * total_f1 / len(gold)}


def scores_v2(
    gold: dict[str, list[str]],
    predictions: dict[str, str],
    odds: dict[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """As evaluate-v2.0.py with all predictions at hand."""
    raw = {id: question_scores(predictions[id], answers, "2.0") for id, answers in gold.items()}
    final = {}
    for id, (e, f) in raw.items():
        if odds is not None and odds[id] > threshold:
            e = f = 0.0 if gold[id] else 1.0
        final[id] = (e, f)
    result: dict[str, float] = {}
    groups = {"": list(gold), "HasAns_": [i for i in gold if gold[i]]}
    groups["NoAns_"] = [i for i in gold if not gold[i]]
    for prefix, ids in groups.items():
        if ids:
            result[f"{prefix}exact"] = 100 * sum(final[i][0] for i in ids) / len(ids)
            result[f"{prefix}f1"] = 100 * sum(final[i][1] for i in ids) / len(ids)
            result[f"{prefix}total"] = len(ids)
    if odds is not None:
        for name, k in (("exact", 0), ("f1", 1)):
            best, value = official_best({i: raw[i][k] for i in raw}, predictions, odds, gold)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best, value
        if groups["HasAns_"]:
            kinds = {name: {i: raw[i][k] for i in raw} for k, name in enumerate(("exact", "f1"))}
            kinds["oracle"] = {i: float(bool(gold[i])) for i in gold}
            for name, scores in kinds.items():
                result[f"pr_{name}_ap"] = average_precision(scores, odds, gold)
    return result


def official_best(
    scores: dict[str, float],
    predictions: dict[str, str],
    odds: dict[str, float],
    gold: dict[str, list[str]],
) -> tuple[float, float]:
    """One question after the other moves from "no answer" to its text, the surest first."""
    current = best = float(sum(1 for answers in gold.values() if not answers))
    threshold = 0.0
    for id in sorted(odds, key=odds.get):
        if gold[id]:
            current += scores[id]
        elif predictions[id]:
            current -= 1
        if current > best:
            best, threshold = current, odds[id]
    return 100 * best / len(scores), threshold


def average_precision(
    scores: dict[str, float], odds: dict[str, float], gold: dict[str, list[str]]
) -> float:
    with_answer = sum(1 for answers in gold.values() if answers)
    area, last_recall = 0.0, 0.0
    for cut in sorted(set(odds.values())):
        taken = [id for id in odds if odds[id] <= cut]
        true = sum(scores[id] for id in taken if gold[id])
        area += true / len(taken) * (true / with_answer - last_recall)
        last_recall = true / with_answer
    return 100 * area


def best_threshold(
    odds: list[float], scores: list[float], has_answer: list[bool]
) -> tuple[float, float]:
    """Tries every threshold there is; (score in percent, the lowest threshold that gives it)."""
    best = (-math.inf, 0.0)
    for threshold in [-math.inf, *sorted(set(odds))]:
        rows = zip(odds, scores, has_answer, strict=True)
        total = sum((0.0 if has else 1.0) if odd > threshold else s for odd, s, has in rows)
        if total > best[0] + 1e-12:
            best = (total, threshold)
    return 100 * best[0] / len(odds), best[1]


def windows(size: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(first token, tokens) as run_squad.py of google-research/bert lays them."""
    found, first = [], 0
    while first < size:
        length = min(room, size - first)
        found.append((first, length))
        if first + length == size:
            break
        first += min(length, stride)
    return found


def best_window(spans: list[tuple[int, int]], token: int) -> int:
    """The window in which a token has its maximal context."""
    best, chosen = -1.0, -1
    for w, (first, length) in enumerate(spans):
        last = first + length - 1
        if first <= token <= last:
            score = min(token - first, last - token) + 0.01 * length
            if score > best:
                best, chosen = score, w
    return chosen
