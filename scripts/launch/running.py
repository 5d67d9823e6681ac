"""Commands that are run, files that are written; with --dry-run both are only shown."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert_lamb.cli.verbs import FAULT

ROOT = Path(__file__).resolve().parents[2]
# Where generated files go; git ignores build/.
MADE = ROOT / "build" / "launch"
# Status of a request that cannot be right, as argparse uses it.
WRONG = 2
# Statuses of `bert-lamb pretrain` that no repetition mends: a fault that its last line explains,
# and a wrong command line. After others, above all 75 for a lost host, the run is started again.
FINAL = (FAULT, WRONG)


class LaunchError(Exception):
    """A fault the user can mend; its text is one line that says what to do."""


@dataclass(frozen=True)
class Runner:
    """Runs commands and writes files, or shows them.

    Attributes:
        dry: show only; nothing is executed or written.
    """

    dry: bool

    def run(self, command: Sequence[str]) -> None:
        """Shows a command so that it can be pasted, and runs it.

        Raises:
            LaunchError: if the program is absent or ends with another status than 0.
        """
        print(f"$ {shown(command)}", flush=True)
        if not self.dry:
            _checked(command)

    def read(self, command: Sequence[str]) -> str:
        """Like `run`, but returns what the command printed; "" in a dry run."""
        print(f"$ {shown(command)}", flush=True)
        if self.dry:
            return ""
        return _checked(command, stdout=subprocess.PIPE).strip()

    def write(self, path: Path, text: str) -> None:
        """Shows a file and writes it, making its folder.

        Raises:
            LaunchError: if the system refuses.
        """
        print(f"# file {path}")
        if self.dry:
            print(text, end="" if text.endswith("\n") else "\n")
            print(f"# end of {path.name}")
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        except OSError as error:
            raise LaunchError(
                f"{path}: {error.strerror}; check the space and the rights there"
            ) from None


def shown(command: Sequence[str]) -> str:
    """Quotes a command for a shell, in lines of up to 100 characters where its words allow it."""
    lines = [shlex.quote(command[0])]
    for word in map(shlex.quote, command[1:]):
        if len(lines[-1]) + len(word) < 98:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return " \\\n".join(lines)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Adds --dry-run."""
    parser.add_argument(
        "--dry-run", action="store_true", help="print every command and file; do nothing"
    )


def add_verb(
    verbs: argparse._SubParsersAction, name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    """Adds a verb that explains itself and knows --dry-run."""
    parser = verbs.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_dry_run(parser)
    return parser


def guarded(program: str, body: Callable[[], None]) -> int:
    """Runs a launcher; a fault becomes one line on stderr and status 2."""
    from bert_lamb.config import ConfigError

    try:
        body()
    except (LaunchError, ConfigError) as error:
        # A fault in the user's config file may bring a text of several lines.
        print(f"{program}: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return 130
    return 0


def _checked(command: Sequence[str], stdout: int | None = None) -> str:
    try:
        done = subprocess.run(command, stdout=stdout, text=True, check=False)
    except FileNotFoundError:
        raise LaunchError(
            f"{command[0]}: no such program on PATH; install it, or look at the commands with "
            "--dry-run"
        ) from None
    except OSError as error:
        raise LaunchError(f"{command[0]}: cannot be started: {error.strerror}") from None
    if done.returncode:
        raise LaunchError(
            f"status {done.returncode} from {shlex.join(command[:6])} ...; its message is above"
        )
    return done.stdout or ""
