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


def some_path(text: str) -> str:
    """Takes a path as it is, but refuses the empty one, as `workdir` does."""
    if not text.strip():
        raise argparse.ArgumentTypeError("empty; expected a path")
    return text


def check_apart(source: str, *outputs: object) -> None:
    """Checks that no output is the file that is read.

    Raises:
        DataError: if one is.
    """
    from bert_lamb.data.errors import DataError

    for output in map(str, outputs):
        if os.path.realpath(output) == os.path.realpath(source):
            raise DataError(f"--output: {output} is the file that is read; name another one")


def make_room(path: str) -> None:
    """Makes the folder of a file that will be written.

    Raises:
        DataError: if a folder is where the file should be.
    """
    from etils import epath

    from bert_lamb.data.errors import DataError

    file = epath.Path(path)
    if file.is_dir():
        raise DataError(f"--output: {path} is a folder; expected the name of a file")
    file.parent.mkdir(parents=True, exist_ok=True)


def check_batch(batch: int) -> None:
    """Checks a number of rows.

    Raises:
        DataError: if there are none.
    """
    from bert_lamb.data.errors import DataError

    if batch < 1:
        raise DataError(f"--batch={batch}: expected at least 1 row")


def workdir(text: str) -> os.PathLike[str]:
    """Takes a path, local or remote such as gs://BUCKET/RUN.

    Refuses the empty path, which a shell makes of an unset variable and means "here".
    """
    from etils import epath

    if not text.strip():
        raise argparse.ArgumentTypeError("empty; expected the path of a folder")
    return epath.Path(text)
