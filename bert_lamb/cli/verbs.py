"""What the verbs of the command line share."""

import argparse
import os
from pathlib import Path

OK, FAULT = 0, 1


def add_verb(
    verbs: argparse._SubParsersAction, name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    """Adds a verb that explains itself."""
    return verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def folder(text: str) -> Path:
    """Refuses the empty path, which a shell makes of an unset variable and means "here"."""
    if not text.strip():
        raise argparse.ArgumentTypeError("empty; expected the path of a folder")
    return Path(text)


def workdir(text: str) -> os.PathLike[str]:
    """Like `folder`, but the path may be remote, such as gs://BUCKET/RUN."""
    from etils import epath

    folder(text)  # for its check
    return epath.Path(text)
