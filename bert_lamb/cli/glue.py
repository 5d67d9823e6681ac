"""`bert-lamb glue`: classes of texts, and numbers for them."""

import argparse
import json

from bert_lamb.cli.squad_model import CHECKPOINT_HELP
from bert_lamb.cli.training import add_training, train
from bert_lamb.cli.verbs import OK, add_verb, check_apart, check_batch, make_room, some_path


def add_glue(verbs: argparse._SubParsersAction) -> None:
    """Adds `glue` with its steps."""
    glue = add_verb(verbs, "glue", "fine-tune and score on GLUE, or on a table of your own",
                    "bert-lamb glue train --help")  # fmt: skip
    steps = glue.add_subparsers(metavar="STEP", required=True)
    training = add_verb(
        steps, "train", "fine-tune a pretrained model as a config file says; resume if stopped",
        "bert-lamb glue train --config=configs/glue.py --workdir=runs/mrpc \\\n"
        "      --config.init_from=runs/mine --config.train=train.tsv --config.dev=dev.tsv",
    )  # fmt: skip
    add_training(training)
    training.set_defaults(verb=_train)
    predict = add_verb(
        steps, "predict", "predict a table as GLUE's server takes it; score it if it has labels",
        "bert-lamb glue predict test.tsv --checkpoint=runs/mrpc --output=MRPC.tsv",
    )  # fmt: skip
    predict.add_argument("data", help="TSV file, local or remote (gs://)")
    predict.add_argument("--checkpoint", required=True, type=some_path, help=CHECKPOINT_HELP)
    predict.add_argument(
        "--output", required=True, type=some_path, metavar="FILE", help="TSV file to write"
    )
    predict.add_argument("--batch", type=int, default=32, help="rows at once, default 32")
    predict.set_defaults(verb=_predict)
    evaluate = add_verb(
        steps, "evaluate", "score predictions by the published metrics",
        "bert-lamb glue evaluate MRPC dev.tsv predictions.tsv",
    )  # fmt: skip
    evaluate.add_argument("task", help="such as CoLA, MRPC or STS-B")
    evaluate.add_argument("data", help="TSV file with labels")
    evaluate.add_argument("predictions", help="TSV file with the columns index and prediction")
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of a table")
    evaluate.set_defaults(verb=_evaluate)


def _train(args: argparse.Namespace) -> int:
    from bert_lamb.finetuning.config import GlueConfig
    from bert_lamb.finetuning.glue import prepare

    return train(args, GlueConfig, prepare)


def _predict(args: argparse.Namespace) -> int:
    from bert_lamb.finetuning.config import GlueConfig
    from bert_lamb.finetuning.glue import GlueScore, predict_dataset
    from bert_lamb.finetuning.runs import task_of
    from bert_lamb.finetuning.tuned import open_tuned
    from bert_lamb.glue.metrics import evaluate
    from bert_lamb.glue.reading import read_dataset
    from bert_lamb.glue.writing import write_predictions

    check_batch(args.batch)
    check_apart(args.data, args.output)
    make_room(args.output)
    tuned = open_tuned(args.checkpoint, GlueConfig)
    dataset = read_dataset(args.data, task_of(tuned.config))
    print(dataset.describe())
    found = predict_dataset(tuned, dataset, args.batch)
    file = write_predictions(args.output, dataset, found)
    if dataset.labels is not None:
        print(GlueScore(evaluate(dataset.task, found, dataset.labels)).describe())
    print(f"step {tuned.step} of {args.checkpoint}: wrote {file}")
    return OK


def _evaluate(args: argparse.Namespace) -> int:
    from bert_lamb.glue.metrics import check_libraries, evaluate
    from bert_lamb.glue.reading import read_dataset, read_predictions
    from bert_lamb.glue.tasks import find_task

    check_libraries()
    dataset = read_dataset(args.data, find_task(args.task))
    labels = dataset.require_labels()
    found = evaluate(dataset.task, read_predictions(args.predictions, dataset), labels)
    if args.json:
        print(json.dumps({**found.metrics, "notes": found.notes}, indent=2))
        return OK
    width = max(map(len, found.metrics))
    for name, value in found.metrics.items():
        print(f"{name:<{width}}  {value:.4f}")
    for note in found.notes:
        print(f"note: {note}")
    return OK
