"""`bert-lamb pretrain`, `evaluate`, `fill-mask` and `inspect`: runs and their checkpoints."""

import argparse
import json

from bert_lamb.cli.overrides import as_flags, load_config
from bert_lamb.cli.verbs import OK, add_verb, workdir


def add_pretrain(verbs: argparse._SubParsersAction) -> None:
    """Adds `pretrain`."""
    pretrain = add_verb(
        verbs, "pretrain", "pretrain BERT as a config file says; resume if it was stopped",
        "bert-lamb pretrain --config=configs/demo.py --workdir=runs/mine \\\n"
        "      --config.optimizer.weight_decay=0.02 --config.phases[0].steps=100",
    )  # fmt: skip
    pretrain.add_argument(
        "--config", required=True, metavar="FILE",
        help="Python file whose get_config() returns the configuration; a number, flag or text "
        "in it is set on the command line as --config.KEY=VALUE",
    )  # fmt: skip
    pretrain.add_argument(
        "--workdir", required=True, type=workdir,
        help="folder for checkpoints, metrics.jsonl and TensorBoard files; the same command with "
        "the same folder resumes",
    )  # fmt: skip
    pretrain.add_argument(
        "--dry-run", action="store_true", help="check everything, print the phases, do not train"
    )
    pretrain.add_argument(
        "--print-config", action="store_true",
        help="print every key with its value, as the command line takes it; do not train",
    )  # fmt: skip
    hosts = pretrain.add_argument_group(
        "several hosts", "run the same command on each; these are for where the platform (Cloud "
        "TPU, GKE, Slurm, Open MPI) does not tell them of each other",
    )  # fmt: skip
    hosts.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0, a free port there")
    hosts.add_argument("--num-processes", type=int, metavar="N", help="processes of the job")
    hosts.add_argument("--process-id", type=int, metavar="I", help="this one, from 0")
    pretrain.set_defaults(verb=_pretrain, takes_overrides=True)


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
    from bert_lamb.parallel.hosts import is_first
    from bert_lamb.parallel.joining import join
    from bert_lamb.training.trainer import describe_run, pretrain

    join(args.coordinator, args.num_processes, args.process_id)
    config = load_config(args.config, args.config_flags)
    if args.print_config:
        print("\n".join(as_flags(config)))
        return OK
    if args.dry_run:
        print(describe_run(config))
        return OK
    outcome = pretrain(config, args.workdir)
    say = print if is_first() else (lambda _: None)
    if outcome.stopped_by is not None:
        say(f"stopped by signal {outcome.stopped_by} after step {outcome.step}, which is saved; "
            "the same command resumes")  # fmt: skip
        return 128 + outcome.stopped_by
    say(f"done: checkpoints, metrics.jsonl and tensorboard/ are in {args.workdir}")
    return OK


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
