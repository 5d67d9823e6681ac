"""A folder that is there whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bert_lamb.data.errors import DataError


@contextmanager
def new_folder(output: str | Path) -> Iterator[Path]:
    """Yields a hidden folder that becomes `output` at the end of the block, or is removed.

    Args:
        output: local folder that does not exist or is empty.

    Raises:
        DataError: if it is remote or holds anything.
    """
    if not str(output):
        raise DataError("output '': empty; name a folder to make")
    if "://" in str(output):
        raise DataError(
            f"output {str(output)!r}: expected a local folder, which appears once it is complete; "
            "copy it from there, for example with `gcloud storage cp -r`"
        )
    target = Path(output).absolute()
    if target.is_symlink() or (
        target.exists() and not (target.is_dir() and not any(target.iterdir()))
    ):
        raise DataError(
            f"output {str(output)!r}: exists and is not an empty folder; name another one, or "
            "remove it first"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        stage.chmod(0o755)
        yield stage
        stage.rename(target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
