"""The folder of a build that is under way, beside its output."""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etils import epath

from bert_lamb.data.building.report import REPORT_FILE
from bert_lamb.data.building.storage import load_json, save_json
from bert_lamb.data.errors import DataError, KeptWorkError, last_line
from bert_lamb.data.records.manifest import MANIFEST_FILE
from bert_lamb.data.tokenization import TOKENIZER_FILES

_log = logging.getLogger(__name__)
_MADE = (MANIFEST_FILE, REPORT_FILE, *TOKENIZER_FILES)


@dataclass(frozen=True)
class Workplace:
    """Where a build works.

    Attributes:
        folder: its own folder; whole results of pieces of work stay here from run to run.
        result: folder where the record sets are put together.
        output: what `result` becomes at the end; the same folder if that is remote, where a
            manifest, written last, is what makes a record set.
    """

    folder: epath.Path
    result: epath.Path
    output: epath.Path

    def finish(self, overwrite: bool) -> None:
        """Puts the result in its place; an earlier build goes only once this one stands.

        Raises:
            KeptWorkError: if something has appeared in that place meanwhile.
        """
        if self.result != self.output:
            try:
                check_output(str(self.output), overwrite)
            except DataError as error:
                raise KeptWorkError(str(error)) from error
            _move(Path(self.result), Path(self.output))
        self.folder.rmtree()


@contextlib.contextmanager
def workplace(output: str, overwrite: bool, identity: dict[str, Any]) -> Iterator[Workplace]:
    """Opens the folder of a build, new or left by one that was interrupted.

    It goes where the build ends by a fault of its text, and stays behind where it ends by anything
    else, so that the same build can go on from it.

    Args:
        output: folder to make in the end.
        overwrite: replace an earlier build there, finished or not.
        identity: what the build depends on, see options.fingerprint.

    Raises:
        DataError: if `output` is there already, or another build works on it, or an interrupted
            one was started with something else.
    """
    target = check_output(output, overwrite)
    remote = "://" in output
    if not remote:
        target = epath.Path(Path(output).resolve())  # what a link points to is what is replaced
    folder = target / "_building" if remote else target.parent / f".{target.name}.building"
    result = target if remote else folder / "result"
    with _locked(folder, remote, output):
        _settle(folder, identity, overwrite)
        for name in ("texts", "parts", "shards", "result"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        try:
            yield Workplace(folder, result, target)
        except DataError as error:
            started = any((folder / "texts").glob("*.json"))
            if not (isinstance(error, KeptWorkError) and started):
                folder.rmtree(missing_ok=True)
            raise


@contextlib.contextmanager
def _locked(folder: epath.Path, remote: bool, output: str) -> Iterator[None]:
    """Holds a local folder for this process; the system lets go of it however that ends."""
    if remote:
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Path(f"{folder}.lock")
    with lock.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"output {output!r}: another build is making it; wait for that one, or name "
                "another directory"
            ) from error
        if not lock.exists() or os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
            raise DataError(f"output {output!r}: another build has just ended there; start again")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _settle(folder: epath.Path, identity: dict[str, Any], overwrite: bool) -> None:
    """Decides what becomes of the work that an interrupted build left behind."""
    file = folder / "build.json"
    identity = json.loads(json.dumps(identity))  # as it reads back
    before = load_json(file)
    if before is not None and before != identity:
        if not overwrite:
            changed = ", ".join(key for key in identity if identity[key] != before.get(key))
            raise DataError(
                f"output {folder!s}: an interrupted build with other {changed} waits there; repeat "
                "its command to finish it, or give it up (--overwrite)"
            )
        before = None
    if before is not None:
        _log.info("going on with the interrupted build in %s", folder)
    else:
        if folder.exists() and not overwrite and any(folder.iterdir()) and not file.exists():
            raise DataError(
                f"output: {folder}, where the build would work, holds files of something else; "
                "move them away"
            )
        if folder.exists():
            folder.rmtree()
        folder.mkdir(parents=True)
        save_json(file, identity)


def check_output(output: str, overwrite: bool) -> epath.Path:
    """Returns the path of `output` if a build may make it; raises DataError if not."""
    if not output:
        raise DataError("output '': empty; name a directory to make")
    if "://" in output:
        _check_remote(output)
    else:
        _check_local(output)
    target = epath.Path(output)
    entries = [p for p in target.iterdir() if p.name != "_building"] if target.is_dir() else []
    if not target.exists() or (target.is_dir() and not entries):
        return target
    made = [(target / name / MANIFEST_FILE).exists() for name in ("", "train")]
    if not any(made):
        if "://" in output and (target / "_building").exists():
            return target  # an interrupted build
        raise DataError(
            f"output {output!r}: exists and is not a record set; name another directory"
        )
    if not overwrite:
        raise DataError(
            f"output {output!r}: holds records already; name another directory, or ask to "
            "overwrite (--overwrite)"
        )
    foreign = [str(path) for path in _foreign_files(target)]
    if foreign:
        raise DataError(
            f"output {output!r}: holds files that no build made: {', '.join(foreign[:5])}; "
            "move them away, or name another directory"
        )
    return target


def _check_local(output: str) -> None:
    path = Path(output)
    if path.is_symlink() and not path.exists():
        raise DataError(f"output {output!r}: a link to nowhere; name another directory")
    try:
        output.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"output {output!r}: a name that is not UTF-8; take another") from error
    if path.exists() and (path.resolve() == Path.cwd() or os.path.ismount(path)):
        raise DataError(
            f"output {output!r}: the present directory or a mount point, which cannot be replaced "
            "when the build is done; name a directory inside of it"
        )


def _check_remote(output: str) -> None:
    try:
        epath.Path(output).exists()
    except (ImportError, KeyError, ValueError) as error:
        raise DataError(
            f"output {output!r}: this kind of address cannot be written here "
            f"({last_line(error)}); install the fsspec package for it (gcsfs for gs://, s3fs for "
            "s3://), or build in a local directory"
        ) from error


def _foreign_files(target: epath.Path) -> list[epath.Path]:
    """Returns what would be lost if the record sets in `target` were replaced."""
    inside = [p for p in target.iterdir() if p.name not in ("train", "heldout", "_building")]
    for name in ("train", "heldout"):
        inside += (target / name).iterdir() if (target / name).is_dir() else ()
    return [path for path in inside if path.is_dir() or not _is_made(path.name)]


def _is_made(name: str) -> bool:
    return name in _MADE or name.startswith("pairs-")


def _move(stage: Path, target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    if not target.exists():
        stage.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(old)
    try:
        stage.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
