"""What all verbs that train share: their flags, and how a run begins and ends."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from bert_lamb.cli.overrides import as_flags, load_config_as
from bert_lamb.cli.verbs import OK, workdir

if TYPE_CHECKING:
    from bert_lamb.training.task import Task

Config = TypeVar("Config")


def add_training(verb: argparse.ArgumentParser) -> None:
    """Adds the flags of a verb that trains."""
    verb.add_argument(
        "--config", required=True, metavar="FILE",
        help="Python file whose get_config() returns the configuration; a number, flag or text "
        "in it is set on the command line as --config.KEY=VALUE",
    )  # fmt: skip
    verb.add_argument(
        "--workdir", required=True, type=workdir,
        help="folder for checkpoints, metrics.jsonl and TensorBoard files; the same command with "
        "the same folder resumes",
    )  # fmt: skip
    verb.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, say what it would do, do not train",
    )
    verb.add_argument(
        "--print-config", action="store_true",
        help="print every key with its value, as the command line takes it; do not train",
    )  # fmt: skip
    hosts = verb.add_argument_group(
        "several hosts", "run the same command on each; these are for where the platform (Cloud "
        "TPU, GKE, Slurm, Open MPI) does not tell them of each other",
    )  # fmt: skip
    hosts.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0, a free port there")
    hosts.add_argument("--num-processes", type=int, metavar="N", help="processes of the job")
    hosts.add_argument("--process-id", type=int, metavar="I", help="this one, from 0")
    verb.set_defaults(takes_overrides=True)


def train(
    args: argparse.Namespace,
    kind: type[Config],
    prepare: Callable[[Config], "tuple[Task, list[str]]"],
) -> int:
    """Does what the flags say.

    Args:
        args: of the verb.
        kind: of its configuration.
        prepare: reads all that a configuration names; returns the task, and lines to show first.
    """
    from bert_lamb.parallel.hosts import is_first
    from bert_lamb.parallel.joining import join
    from bert_lamb.training import trainer
    from bert_lamb.training.preflight import check_workdir

    join(args.coordinator, args.num_processes, args.process_id)
    config = load_config_as(kind, args.config, args.config_flags)
    if args.print_config:
        print("\n".join(as_flags(config)))
        return OK
    task, lines = prepare(config)
    say = partial(print, flush=True) if is_first() else (lambda _: None)
    for line in lines:
        say(line)
    if args.dry_run:
        check_workdir(args.workdir, task.config)
        print(trainer.describe_run(task))
        return OK
    outcome = trainer.train(task, args.workdir)
    if outcome.stopped_by is not None:
        say(f"stopped by signal {outcome.stopped_by} after step {outcome.step}, which is saved; "
            "the same command resumes")  # fmt: skip
        return 128 + outcome.stopped_by
    events = ", tensorboard/" * task.run.logging.tensorboard
    say(f"done: checkpoints/, metrics.jsonl{events} are in {args.workdir}")
    return OK
