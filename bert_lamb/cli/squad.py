"""`bert-lamb squad`: question answering on SQuAD."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from bert_lamb.cli.squad_model import add_ask, add_predict, add_train
from bert_lamb.cli.verbs import OK, add_verb

if TYPE_CHECKING:
    from bert_lamb.squad.evaluating import Evaluation


def add_squad(verbs: argparse._SubParsersAction) -> None:
    """Adds `squad` with its steps."""
    squad = add_verb(verbs, "squad", "answer the questions of SQuAD, and score answers",
                     "bert-lamb squad train --help")  # fmt: skip
    steps = squad.add_subparsers(metavar="STEP", required=True)
    add_train(steps)
    add_predict(steps)
    add_ask(steps)
    _add_evaluate(steps)
    _add_inspect(steps)


def _add_evaluate(steps: argparse._SubParsersAction) -> None:
    evaluate = add_verb(
        steps, "evaluate", "score anyone's predictions as the official scripts do",
        "bert-lamb squad evaluate dev-v2.0.json predictions.json \\\n"
        "      --null-odds=null_odds.json --plot=precision_recall.png",
    )  # fmt: skip
    _add_data(evaluate)
    evaluate.add_argument("predictions", help="JSON object of question ids and texts")
    evaluate.add_argument(
        "--null-odds", metavar="FILE",
        help="v2.0: JSON object of question ids and scores or probabilities of no answer, for the "
        "best thresholds and precision against recall",
    )  # fmt: skip
    evaluate.add_argument(
        "--null-threshold", type=float, metavar="X",
        help="with --null-odds: above it an answer is taken for none; 1, the official default, "
        "is meant for probabilities",
    )  # fmt: skip
    evaluate.add_argument("--json", metavar="FILE", help="write the scores there; - prints them")
    evaluate.add_argument(
        "--plot", metavar="FILE",
        help="with --null-odds: draw precision against recall (.png, .svg, .pdf)",
    )  # fmt: skip
    evaluate.add_argument(
        "--curves", metavar="FILE", help="with --null-odds: write the points of the curves, as JSON"
    )
    evaluate.set_defaults(verb=_evaluate)


def _add_inspect(steps: argparse._SubParsersAction) -> None:
    inspect = add_verb(
        steps, "inspect", "count a data set, its windows, and the answers that are lost, and why",
        "bert-lamb squad inspect train-v1.1.json --vocab vocab.txt",
    )  # fmt: skip
    _add_data(inspect)
    inspect.add_argument(
        "--vocab", metavar="PATH",
        help="folder made by `data vocab`, a tokenizer.json, vocab.txt or SentencePiece .model; "
        "cut the contexts into windows",
    )  # fmt: skip
    inspect.add_argument("--cased", action="store_true", help="the vocab.txt is a cased one")
    inspect.add_argument("--seq-length", type=int, default=384, help="tokens per row, default 384")
    inspect.add_argument("--stride", type=int, default=128, help="between windows, default 128")
    inspect.add_argument("--max-query", type=int, default=64, help="of a question, default 64")
    inspect.add_argument("--max-answer", type=int, default=30, help="of an answer, default 30")
    inspect.set_defaults(verb=_inspect)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", help="SQuAD file, local or remote (gs://), or tfds:squad/v2.0@validation"
    )
    parser.add_argument(
        "--squad-version", choices=("1.1", "2.0"), metavar="V",
        help="fail unless the data are of this version, 1.1 or 2.0 (default: take what they are)",
    )  # fmt: skip


def _evaluate(args: argparse.Namespace) -> int:
    from bert_lamb.data.errors import DataError
    from bert_lamb.squad.curves import plot_curves
    from bert_lamb.squad.evaluating import (
        OFFICIAL_THRESHOLD,
        evaluate,
        read_null_odds,
        read_predictions,
    )
    from bert_lamb.squad.reading import read_dataset

    for flag in ("null_threshold", "plot", "curves"):
        if getattr(args, flag) is not None and args.null_odds is None:
            raise DataError(f"--{flag.replace('_', '-')} needs --null-odds; add it")
    predictions = read_predictions(args.predictions)
    odds = read_null_odds(args.null_odds) if args.null_odds else None
    threshold = OFFICIAL_THRESHOLD if args.null_threshold is None else args.null_threshold
    dataset = read_dataset(args.data, args.squad_version)
    result = evaluate(dataset, predictions, odds, threshold)
    _warn(result)
    if args.plot:
        plot_curves(result.curves, args.plot)
    if args.curves:
        _write_json(args.curves, {name: _points(curve) for name, curve in result.curves.items()})
    if args.json:
        lists = {"missing": result.missing, "unknown": result.unknown, "notes": result.notes}
        _write_json(args.json, {"version": result.version, **result.metrics, **lists})
    if args.json != "-":
        width = max(map(len, result.metrics))
        for name, value in result.metrics.items():
            print(f"{name:<{width}}  {value:.4f}" if type(value) is float else
                  f"{name:<{width}}  {value}")  # fmt: skip
    return OK


def _warn(result: "Evaluation") -> None:
    from bert_lamb.squad.dataset import shown

    if result.missing:
        print(f"warning: no prediction for {len(result.missing):,} questions, which score 0: "
              f"{shown(result.missing)}", file=sys.stderr)  # fmt: skip
    if result.unknown:
        print(f"warning: {len(result.unknown):,} predictions are for no question of the data, "
              f"without effect: {shown(result.unknown)}", file=sys.stderr)  # fmt: skip
    for note in result.notes:
        print(f"note: {note}", file=sys.stderr)


def _points(curve: Any) -> dict[str, list[float]]:
    return {"precision": curve.precision.tolist(), "recall": curve.recall.tolist()}


def _write_json(path: str, content: Any) -> None:
    from etils import epath

    text = json.dumps(content, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        epath.Path(path).write_text(text)


def _inspect(args: argparse.Namespace) -> int:
    from bert_lamb.data.tokenization import TextOptions, load_tokenizer
    from bert_lamb.squad.dataset import shown
    from bert_lamb.squad.features import FeatureOptions, make_features
    from bert_lamb.squad.labels import make_labels
    from bert_lamb.squad.reading import read_dataset

    options = FeatureOptions(args.seq_length, args.stride, args.max_query)
    dataset = read_dataset(args.data, args.squad_version)
    print(dataset.describe())
    if args.vocab is None:
        return OK
    cased = TextOptions(lowercase=False) if args.cased else None
    features = make_features(dataset, load_tokenizer(args.vocab, cased), options)
    print(f"{len(features):,} windows of {options.seq_length} tokens, stride {options.stride}")
    if features.cut:
        ids = [dataset.questions[number].id for number in features.cut]
        print(f"{len(ids):,} questions are longer than {options.max_query} tokens and cut: "
              f"{shown(ids)}")  # fmt: skip
    print(make_labels(dataset, features).describe(args.max_answer))
    return OK
