"""The `bert-lamb pretrain` command that every host runs, checked before any machine is paid for."""

import argparse
import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from running import LaunchError


@dataclass(frozen=True)
class Job:
    """What is run.

    Attributes:
        config: the config file, on this machine.
        workdir: folder of the run, which all hosts reach.
        overrides: --config.KEY=VALUE arguments.
        cache: folder of compiled programs, "" for none.
        env: NAME=VALUE arguments.
        max_restarts: how often the platform starts the job again.
    """

    config: Path
    workdir: str
    overrides: tuple[str, ...]
    cache: str
    env: tuple[str, ...]
    max_restarts: int

    def command(self, program: str, config: str) -> list[str]:
        """Returns the command with the paths that hold on the hosts."""
        return [
            program, "pretrain", f"--config={config}", f"--workdir={self.workdir}", *self.overrides,
        ]  # fmt: skip


def add_name(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the positional NAME."""
    parser.add_argument("name", metavar="NAME", help=f"of the {what}: a-z, 0-9 and -")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Adds what every launcher asks about the job."""
    parser.add_argument(
        "--config", required=True, metavar="FILE",
        help="config file, which is shipped; --config.KEY=VALUE overrides a key of it, as in "
        "`bert-lamb pretrain`",
    )  # fmt: skip
    parser.add_argument(
        "--workdir", required=True,
        help="folder of checkpoints and metrics that every host reaches: gs://BUCKET/RUN",
    )  # fmt: skip
    parser.add_argument(
        "--cache", default=None, metavar="DIR",
        help="compiled programs, kept for restarts; default PARENT_OF_WORKDIR/compilation-cache, "
        '"" for none',
    )  # fmt: skip
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE",
        help="environment variable, may be repeated; replaces a default of environment.py",
    )  # fmt: skip
    parser.add_argument(
        "--max-restarts", type=int, default=20, metavar="N",
        help="how often the job is started again after a failure or a preemption, default 20",
    )  # fmt: skip


def load_job(args: argparse.Namespace, rest: Sequence[str]) -> Job:
    """Reads the config with its overrides as `bert-lamb pretrain` will, and checks the paths.

    Args:
        args: of a parser with `add_job`.
        rest: arguments that the parser did not know.

    Raises:
        LaunchError: if a path or an argument is wrong.
        ConfigError: if the config or an override is.
    """
    from environment import default_cache, with_extra

    from bert_lamb.cli.overrides import load_config

    config = load_config(args.config, overrides_only(rest))
    with_extra({}, args.env)
    if args.max_restarts < 0:
        raise LaunchError(f"--max-restarts={args.max_restarts}: expected 0 or more")
    for index, phase in enumerate(config.phases):
        if not re.match(r"gs://[^/]+/|/", phase.records):
            raise LaunchError(
                f"{args.config}: phases[{index}].records is {phase.records!r}, which not every "
                f"host has; give --config.phases[{index}].records=gs://BUCKET/FOLDER, or /MOUNT/..."
            )
    cache = default_cache(args.workdir) if args.cache is None else args.cache
    return Job(
        config=Path(args.config),
        workdir=args.workdir,
        overrides=tuple(rest),
        cache=cache,
        env=tuple(args.env),
        max_restarts=args.max_restarts,
    )


def overrides_only(rest: Sequence[str], known: Sequence[str] = ()) -> list[str]:
    """Returns `rest` if all of it are overrides.

    Raises:
        LaunchError: for anything else, with the nearest of the `known` options.
    """
    for argument in rest:
        if not argument.startswith("--config."):
            near = difflib.get_close_matches(argument.partition("=")[0], known, n=1)
            hint = f"did you mean {near[0]}?" if near else "see --help"
            raise LaunchError(f"unknown argument {argument}; {hint}")
    return list(rest)


def check_bucket(workdir: str, hosts: int) -> None:
    """Checks that all hosts reach the working directory.

    Raises:
        LaunchError: if it is no bucket.
    """
    if not re.match(r"gs://[^/]+/.", workdir):
        raise LaunchError(
            f"--workdir={workdir}: {hosts} host{'s' * (hosts > 1)} without a common disk; expected "
            "gs://BUCKET/RUN"
        )


def check_name(name: str, longest: int = 40) -> None:
    """Checks a name that becomes part of host names.

    Raises:
        LaunchError: if it cannot.
    """
    if len(name) > longest or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise LaunchError(
            f"name {name!r}: expected at most {longest} of a-z, 0-9 and -, beginning with a letter "
            "and not ending with -"
        )


def exports(variables: Mapping[str, str]) -> str:
    """Returns shell lines that set environment variables."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
