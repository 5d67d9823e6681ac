"""The `bert-lamb pretrain` command that every host runs, checked before any machine is paid for."""

import argparse
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment import default_cache, with_extra
from options import add_number, add_text
from running import LaunchError

from bert_lamb.config import ConfigError, PretrainConfig

# What hosts can have in common: a folder of a bucket, or of a disk that all of them mount.
_BUCKET = re.compile(r"gs://[^/]+/+[^/].*")
_SHARED = re.compile(rf"{_BUCKET.pattern}|/+[^/].*")


@dataclass(frozen=True)
class Job:
    """What is run.

    Attributes:
        config: text of the config file.
        workdir: folder of the run, which all hosts reach.
        overrides: --config.KEY=VALUE arguments.
        cache: folder of compiled programs, "" for none.
        env: NAME=VALUE arguments.
        max_restarts: how often the platform starts the job again.
    """

    config: str
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


def add_job(parser: argparse.ArgumentParser) -> None:
    """Adds what every launcher asks about the job."""
    add_text(
        parser, "--config", required=True, metavar="FILE",
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
    add_number(
        parser, "--max-restarts", least=0, default=20, metavar="N",
        help="how often the job is started again after a failure or a preemption, default 20",
    )  # fmt: skip


def load_job(args: argparse.Namespace, devices: int, slices: Sequence[int]) -> Job:
    """Reads the config with its overrides as `bert-lamb pretrain` will, and checks the job.

    Args:
        args: of a parser with `add_job`, with the `overrides`.
        devices: JAX devices of the job, of all slices.
        slices: numbers of slices that JAX may see; one of them has to suit the config.

    Raises:
        LaunchError: if a path or an argument is wrong.
        ConfigError: if the config or an override is, or does not suit the devices.
    """
    from bert_lamb.cli.overrides import load_config

    config = load_config(args.config, args.overrides)
    with_extra({}, args.env)
    _check_paths(config, args.config)
    cache = default_cache(args.workdir) if args.cache is None else args.cache
    if cache and not _SHARED.fullmatch(cache):
        raise LaunchError(f'--cache={cache}: expected gs://BUCKET/FOLDER, /MOUNT/..., or ""')
    check_devices(config, devices, slices)
    return Job(
        config=_text(Path(args.config)),
        workdir=args.workdir,
        overrides=tuple(args.overrides),
        cache=cache,
        env=tuple(args.env),
        max_restarts=args.max_restarts,
    )


def check_devices(config: PretrainConfig, devices: int, slices: Sequence[int]) -> None:
    """Checks that the mesh has as many devices as the machines, and that they can share batches.

    Args:
        config: of the run.
        devices: JAX devices of the job, of all slices.
        slices: numbers of slices that JAX may see; one of them has to suit the config.

    Raises:
        ConfigError: naming the key and both numbers.
    """
    # Brings JAX along, for which the other verbs need not wait.
    from bert_lamb.parallel.mesh import AXES, ROWS, axis_sizes
    from bert_lamb.training import preflight

    fault: ConfigError | None = None
    for count in slices:
        try:
            sizes = dict(zip(AXES, axis_sizes(config.parallel, devices, count), strict=True))
            preflight.check_devices(config, math.prod(sizes[axis] for axis in ROWS))
            return
        except ConfigError as error:
            fault = fault or error
    if fault:
        raise fault


def _check_paths(config: PretrainConfig, file: str) -> None:
    """Checks that every host has the folders that the config names."""
    paths = {"init_from": config.init_from}
    for index, phase in enumerate(config.phases):
        # Records are needed; an empty text for another key means none.
        paths[f"phases[{index}].records"] = phase.records or " "
        paths[f"phases[{index}].heldout"] = phase.heldout
    for key, path in paths.items():
        if path and not _SHARED.fullmatch(path):
            raise LaunchError(
                f"{file}: {key} is {path.strip()!r}, which not every host has; give "
                f"--config.{key}=gs://BUCKET/FOLDER, or /MOUNT/..."
            )


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise LaunchError(
            f"--config={path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None
    except OSError as error:
        raise LaunchError(f"--config={path}: {error.strerror}; check the rights there") from None


def check_bucket(workdir: str, hosts: int) -> None:
    """Checks that all hosts reach the working directory.

    Raises:
        LaunchError: if it is no bucket.
    """
    if not _BUCKET.fullmatch(workdir):
        raise LaunchError(
            f"--workdir={workdir}: {hosts} host{'s' * (hosts > 1)} without a common disk; expected "
            "gs://BUCKET/RUN"
        )


def check_shared(workdir: str) -> None:
    """Checks that nodes with a common disk reach the working directory.

    Raises:
        LaunchError: if it is neither a full path nor in a bucket.
    """
    if not _SHARED.fullmatch(workdir):
        raise LaunchError(
            f"--workdir={workdir}: expected a full path on a shared disk, or gs://BUCKET/RUN"
        )


def exports(variables: Mapping[str, str]) -> str:
    """Returns shell lines that set environment variables."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
