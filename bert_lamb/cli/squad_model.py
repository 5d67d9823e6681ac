"""`bert-lamb squad train`, `predict` and `ask`: the steps that need a model."""

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bert_lamb.cli.training import add_training, train
from bert_lamb.cli.verbs import OK, add_verb, check_apart, check_batch, some_path

if TYPE_CHECKING:
    from bert_lamb.finetuning.config import SquadConfig
    from bert_lamb.squad.predicting import PredictionOptions

CHECKPOINT_HELP = "folder of a fine-tuned run, or WORKDIR/checkpoints/STEP of one"


def add_train(steps: argparse._SubParsersAction) -> None:
    """Adds `squad train`."""
    verb = add_verb(
        steps, "train", "fine-tune a pretrained model as a config file says; resume if stopped",
        "bert-lamb squad train --config=configs/squad_v1.py --workdir=runs/squad \\\n"
        "      --config.init_from=runs/mine --config.train=train-v1.1.json "
        "--config.dev=dev-v1.1.json",
    )  # fmt: skip
    add_training(verb)
    verb.set_defaults(verb=_train)


def add_predict(steps: argparse._SubParsersAction) -> None:
    """Adds `squad predict`."""
    verb = add_verb(
        steps, "predict", "answer the questions of a data set; score them if it has answers",
        "bert-lamb squad predict dev-v1.1.json --checkpoint=runs/squad --output=runs/answers",
    )  # fmt: skip
    verb.add_argument(
        "data", help="SQuAD file, local or remote (gs://), or tfds:squad/v2.0@validation"
    )
    verb.add_argument("--checkpoint", required=True, type=some_path, help=CHECKPOINT_HELP)
    verb.add_argument(
        "--output", required=True, type=some_path, metavar="DIR",
        help="folder for predictions.json, nbest.json and, for v2.0, null_odds.json",
    )  # fmt: skip
    verb.add_argument(
        "--null-threshold", type=float, metavar="X",
        help="v2.0: no answer where its odds are above it (default: that of the run's config)",
    )  # fmt: skip
    verb.add_argument("--n-best", type=int, metavar="N", help="length of the lists of nbest.json")
    verb.add_argument("--max-answer", type=int, metavar="N", help="tokens of the longest answer")
    verb.add_argument("--batch", type=int, default=32, help="rows at once, default 32")
    verb.set_defaults(verb=_predict)


def add_ask(steps: argparse._SubParsersAction) -> None:
    """Adds `squad ask`."""
    verb = add_verb(
        steps, "ask", "answer questions on a text of your own",
        "bert-lamb squad ask --checkpoint=runs/squad --context=article.txt 'Who wrote it?'",
    )  # fmt: skip
    verb.add_argument("--checkpoint", required=True, type=some_path, help=CHECKPOINT_HELP)
    verb.add_argument("--context", required=True, metavar="FILE", help="text file; - reads stdin")
    verb.add_argument("--top", type=int, default=3, help="answers per question, default 3")
    verb.add_argument("question", nargs="+", help="one or more, quoted")
    verb.set_defaults(verb=_ask)


def _train(args: argparse.Namespace) -> int:
    from bert_lamb.finetuning.config import SquadConfig
    from bert_lamb.finetuning.squad import prepare

    return train(args, SquadConfig, lambda config: prepare(config, args.workdir))


def _predict(args: argparse.Namespace) -> int:
    from etils import epath

    from bert_lamb.finetuning.config import SquadConfig
    from bert_lamb.finetuning.squad import predict_dataset, score
    from bert_lamb.finetuning.tuned import open_tuned
    from bert_lamb.squad.reading import read_dataset
    from bert_lamb.squad.writing import FILES, write_predictions

    check_batch(args.batch)
    folder = epath.Path(args.output)
    check_apart(args.data, *(folder / name for name in FILES))
    dataset = read_dataset(args.data)
    print(dataset.describe())
    tuned = open_tuned(args.checkpoint, SquadConfig)
    options = _options(tuned.config, args)
    folder.mkdir(parents=True, exist_ok=True)
    found = predict_dataset(tuned, dataset, options, args.batch)
    files = write_predictions(args.output, found)
    without = sum(not question.labelled for question in dataset.questions)
    if not without:
        print(score(dataset, found, options.null_threshold).describe())
    elif without < len(dataset.questions):
        print(f"not scored: {without:,} questions are not labelled")
    print(f"step {tuned.step} of {args.checkpoint}: wrote " + ", ".join(map(str, files)))
    return OK


def _options(config: "SquadConfig", args: argparse.Namespace) -> "PredictionOptions":
    from dataclasses import replace

    from bert_lamb.data.errors import DataError

    if args.null_threshold is not None and config.version == "1.1":
        raise DataError(
            "--null-threshold: the model is of v1.1, which has no questions without answer"
        )
    given = {"null_threshold": args.null_threshold, "n_best": args.n_best,
             "max_answer_tokens": args.max_answer}  # fmt: skip
    return replace(config.answers, **{k: v for k, v in given.items() if v is not None})


def _ask(args: argparse.Namespace) -> int:
    from bert_lamb.data.errors import DataError
    from bert_lamb.finetuning.config import SquadConfig
    from bert_lamb.finetuning.squad import ask
    from bert_lamb.finetuning.tuned import open_tuned

    if args.top < 1:
        raise DataError(f"--top={args.top}: expected at least 1 answer")
    if not all(question.strip() for question in args.question):
        raise DataError("an empty question; expected a question, quoted")
    context = _read_text(args.context)
    tuned = open_tuned(args.checkpoint, SquadConfig)
    answers = ask(tuned, context, args.question, n_best=args.top)
    for question, found in zip(args.question, answers, strict=True):
        print(question)
        for candidate in found.candidates[: args.top]:
            text = candidate.text or "(no answer)"
            share = math.exp(candidate.log_probability)
            place = f"  [{candidate.start}:{candidate.end}]" if candidate.text else ""
            print(f"   {share:6.1%}  {text!r}{place}")
    return OK


def _read_text(path: str) -> str:
    from bert_lamb.data.errors import DataError

    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, byte {error.start}: not UTF-8; convert the file") from error
    if not text.strip():
        raise DataError(f"{path}: no text in it; expected a context with the answer")
    return text
