"""Options of the launchers that check their values, and the frame that every launcher runs in."""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from running import LaunchError, Runner, guarded

# What 32 bits hold; Kubernetes keeps counts and seconds in so many.
LARGEST = 2**31 - 1
# More slices in one job than any cluster has; a slip of the finger is caught before it is paid for.
MOST_SLICES = 1024
_NAME_LONGEST = 40


def add_number(
    parser: argparse.ArgumentParser, option: str, *, least: int, most: int = LARGEST, **more: Any
) -> None:
    """Adds an option that takes a whole number from `least` to `most`.

    Args:
        parser: to add to.
        option: such as --lines.
        least: smallest value.
        most: largest value.
        more: other arguments of `add_argument`.
    """

    def number(text: str) -> int:
        # Python's int also reads digits of other scripts, spaces and _.
        value = int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None
        if value is None or not least <= value <= most:
            upper = "or more" if most == LARGEST else f"to {most}"
            raise LaunchError(f"{option}={text}: expected {least} {upper}, a whole number")
        return value

    parser.add_argument(option, type=number, **more)


def add_text(
    parser: argparse.ArgumentParser,
    option: str,
    *,
    pattern: str = r".*\S.*",
    expected: str = "a value; an unset variable of the shell leaves it empty",
    **more: Any,
) -> None:
    """Adds an option whose text must match a pattern; the default takes all but blanks.

    Args:
        parser: to add to.
        option: such as --zone.
        pattern: of the whole text.
        expected: what the pattern means, for the message.
        more: other arguments of `add_argument`.
    """

    def text(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise LaunchError(f"{option}={value}: expected {expected}")
        return value

    parser.add_argument(option, type=text, **more)


def add_slices(parser: argparse.ArgumentParser) -> None:
    """Adds --accelerator and --num-slices."""
    add_text(
        parser, "--accelerator", required=True, metavar="TYPE",
        help="of each slice: v3-32, v4-16, v5e-256, ...",
    )  # fmt: skip
    add_number(
        parser, "--num-slices", least=1, most=MOST_SLICES, default=1, metavar="N", help="default 1"
    )


def add_name(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the positional NAME."""
    parser.add_argument("name", metavar="NAME", help=f"of the {what}: a-z, 0-9 and -")


def launch(
    program: str,
    parser: argparse.ArgumentParser,
    overriding: Callable[..., None],
    argv: Sequence[str] | None,
) -> int:
    """Runs the verb that the command line names.

    Args:
        program: name of the launcher, for messages.
        parser: knows the verbs, each with its function as `verb`.
        overriding: the verb that takes --config.KEY=VALUE.
        argv: words of the command line, default those of this process.

    Returns:
        0, or 2 for a fault that stderr explains in a line.
    """

    def body() -> None:
        words = checked_words(argv)
        args, rest = parser.parse_known_args(words)
        check_name(args.name)
        known = [f"--{name.replace('_', '-')}" for name in vars(args)]
        args.overrides = overrides_only(rest, known)
        if rest and args.verb is not overriding:
            raise LaunchError(
                f"unknown argument {rest[0]}; overrides belong to `{overriding.__name__}`"
            )
        args.verb(args, Runner(args.dry_run))

    return guarded(program, body)


def checked_words(argv: Sequence[str] | None) -> list[str]:
    """Returns the words of the command line, default those of this process.

    Values end up in files that are read line by line (sbatch, YAML, shell), and in a terminal.

    Raises:
        LaunchError: if a word holds what no line can show, such as the end of one.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    for index, word in enumerate(words):
        if word.isprintable():
            continue
        before = words[index - 1] if index else ""
        # The value may stand in a word of its own.
        alone = not word.startswith("-") and before.startswith("--") and "=" not in before
        raise LaunchError(
            f"{f'{before} ' * alone}{word!r}: expected printable characters only, without line "
            "ends, control characters and bytes that are not UTF-8"
        )
    return words


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


def check_name(name: str) -> None:
    """Checks a name that becomes part of host names.

    Raises:
        LaunchError: if it cannot.
    """
    if len(name) > _NAME_LONGEST or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise LaunchError(
            f"name {name!r}: expected at most {_NAME_LONGEST} of a-z, 0-9 and -, beginning with a "
            "letter and not ending with -"
        )
