"""What the verbs of the command line share."""

import argparse
import os

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


def workdir(text: str) -> os.PathLike[str]:
    """Takes a path, local or remote such as gs://BUCKET/RUN.

    Refuses the empty path, which a shell makes of an unset variable and means "here".
    """
    from etils import epath

    if not text.strip():
        raise argparse.ArgumentTypeError("empty; expected the path of a folder")
    return epath.Path(text)
