"""The `bert-lamb` command: one small function per verb.

Heavy packages are imported inside the verbs, so that `bert-lamb --help` answers at once.
"""

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import bert_lamb
from bert_lamb.cli.data import add_data
from bert_lamb.cli.glue import add_glue
from bert_lamb.cli.plan import add_plan
from bert_lamb.cli.runs import add_evaluate, add_fill_mask, add_inspect, add_pretrain
from bert_lamb.cli.squad import add_squad
from bert_lamb.cli.verbs import FAULT
from bert_lamb.config import ConfigError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Returns:
        0 if it did its work, 1 for a fault that its last line explains, 2 for a wrong command
        line, 75 if another host was lost and the same command goes on from the newest checkpoint,
        128 + the signal's number if a run was asked to stop and saved its state.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what the terminal's encoding lacks is shown escaped
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    known, rest = parser.parse_known_args(argv)
    if rest and not getattr(known, "takes_overrides", False):
        parser.error(f"unknown arguments: {' '.join(rest)}")
    known.config_flags = rest
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    for noisy in ("absl", "asyncio", "jax", "orbax", "grain"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        return known.verb(known)
    except KeyboardInterrupt:
        again = "; the same command goes on from what is saved" * getattr(known, "resumes", False)
        print(f"interrupted{again}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """Says what went wrong and returns the exit status; an error of the program is raised again.

    One of several hosts leaves at once: an orderly exit would wait for the others, which may wait
    for this one, or be lost.
    """
    # Imported by the verbs that may have several hosts.
    hosts: Any = sys.modules.get("bert_lamb.parallel.hosts")
    several = hosts is not None and hosts.several()
    if _is_fault(error):
        # Storage that many hosts share fails now and then; for one the message is enough.
        status = hosts.RESTART if several and isinstance(error, OSError) else FAULT
        print(f"bert-lamb: {_message(error)}", file=sys.stderr)
    elif hosts is not None and isinstance(error, hosts.HostsError):
        status = error.status
        print(f"bert-lamb: {error}", file=sys.stderr)
    elif several:
        status = hosts.RESTART
        traceback.print_exception(error)
        print(f"bert-lamb: {hosts.name()} failed, or lost another host; the job can be restarted "
              "as it is and resumes from the newest checkpoint", file=sys.stderr)  # fmt: skip
    else:
        raise error
    if several:
        hosts.leave(status, _message(error))
    return status


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return (
            f"{error.filename}: {error.strerror}; check this path, the space and the rights there, "
            "or give another one"
        )
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}; check the space, and the limits on files"
    return str(error)


def _is_fault(error: Exception) -> bool:
    """Says whether the message alone tells the user what to do."""
    from bert_lamb.data.errors import DataError

    # The text of an OSError names the file and what the system said.
    if isinstance(error, ConfigError | DataError | OSError):
        return True
    # Only a verb that imported these can raise them.
    checkpoint = sys.modules.get("bert_lamb.training.checkpoint")
    recorder = sys.modules.get("bert_lamb.training.recorder")
    return (checkpoint is not None and isinstance(error, checkpoint.CheckpointError)) or (
        recorder is not None and isinstance(error, recorder.NonFiniteError)
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bert-lamb",
        description="Pretrain BERT in JAX with large batches: from text to a checkpoint.",
        epilog="Each verb explains itself: bert-lamb VERB --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=bert_lamb.__version__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    add_data(verbs)
    add_plan(verbs)
    add_pretrain(verbs)
    add_evaluate(verbs)
    add_fill_mask(verbs)
    add_inspect(verbs)
    add_squad(verbs)
    add_glue(verbs)
    return parser
