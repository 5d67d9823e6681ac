"""`bert-lamb pretrain`, `evaluate`, `fill-mask` and `inspect`: runs and their checkpoints."""

import argparse
import json
from typing import TYPE_CHECKING

from bert_lamb.cli.training import add_training, train
from bert_lamb.cli.verbs import OK, add_verb, workdir
from bert_lamb.config import PretrainConfig

if TYPE_CHECKING:
    from bert_lamb.training.task import Task


def add_pretrain(verbs: argparse._SubParsersAction) -> None:
    """Adds `pretrain`."""
    pretrain = add_verb(
        verbs, "pretrain", "pretrain BERT as a config file says; resume if it was stopped",
        "bert-lamb pretrain --config=configs/demo.py --workdir=runs/mine \\\n"
        "      --config.optimizer.weight_decay=0.02 --config.phases[0].steps=100",
    )  # fmt: skip
    add_training(pretrain)
    pretrain.set_defaults(verb=_pretrain)


def add_evaluate(verbs: argparse._SubParsersAction) -> None:
    """Adds `evaluate`."""
    evaluate = add_verb(
        verbs, "evaluate", "score a pretrained model on held-out records",
        "bert-lamb evaluate --workdir=runs/demo --records=runs/demo-data/seq128/heldout",
    )  # fmt: skip
    _add_checkpoint(evaluate)
    evaluate.add_argument("--records", required=True, help="folder of held-out records")
    evaluate.add_argument(
        "--train-records",
        help="folder of training records, to compare with a model of word frequencies only",
    )
    evaluate.add_argument("--batch", type=int, default=32, help="rows at once, default 32")
    evaluate.add_argument("--max-examples", type=int, default=0, help="0, the default, takes all")
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of a table")
    evaluate.set_defaults(verb=_evaluate)


def add_fill_mask(verbs: argparse._SubParsersAction) -> None:
    """Adds `fill-mask`."""
    fill = add_verb(
        verbs, "fill-mask", "guess the words behind [MASK]",
        "bert-lamb fill-mask --workdir=runs/demo 'This function returns a new [MASK].'",
    )  # fmt: skip
    _add_checkpoint(fill)
    fill.add_argument("--top", type=int, default=5, help="guesses per mask, default 5")
    fill.add_argument("sentence", nargs="+", help="text with [MASK] in it, quoted")
    fill.set_defaults(verb=_fill_mask)


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir", required=True, type=workdir, help="folder of a pretraining run"
    )
    parser.add_argument("--step", type=int, help="of the checkpoint (default: the newest)")


def add_inspect(verbs: argparse._SubParsersAction) -> None:
    """Adds `inspect`."""
    inspect = add_verb(
        verbs, "inspect", "list what a checkpoint holds",
        "bert-lamb inspect runs/demo/checkpoints/500",
    )  # fmt: skip
    inspect.add_argument("checkpoint", help="checkpoint folder")
    inspect.set_defaults(verb=_inspect)


def _pretrain(args: argparse.Namespace) -> int:
    def prepare(config: PretrainConfig) -> "tuple[Task, list[str]]":
        from bert_lamb.training.pretraining import Pretraining

        return Pretraining.of(config), []

    return train(args, PretrainConfig, prepare)


def _evaluate(args: argparse.Namespace) -> int:
    from bert_lamb.training.saved import score_saved

    score = score_saved(
        args.workdir, args.step, args.records, args.train_records,
        batch=args.batch, max_examples=args.max_examples,
    )  # fmt: skip
    if args.json:
        print(json.dumps(score, indent=2))
    else:
        width = max(map(len, score))
        print("\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in score.items()))
    return OK


def _shown(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _fill_mask(args: argparse.Namespace) -> int:
    from bert_lamb.evaluation.fill_mask import fill_mask
    from bert_lamb.training.saved import load_saved

    saved = load_saved(args.workdir, args.step)
    for sentence in args.sentence:
        print(sentence)
        masks = fill_mask(saved.config.model, saved.params, saved.tokenizer, sentence, top=args.top)
        for guesses in masks:
            print("   " + "  ".join(f"{g.token} {g.probability:.1%}" for g in guesses))
    return OK


def _inspect(args: argparse.Namespace) -> int:
    from bert_lamb.training.checkpoint import describe

    print(describe(args.checkpoint))
    return OK
