"""A local folder whose files are copied to a remote one: object stores cannot append to a file."""

import logging
import tempfile
import time
from pathlib import Path

from etils import epath

log = logging.getLogger(__name__)
EVERY_SECONDS = 30.0


class Mirror:
    """Copies what has changed in a local folder to a remote one, now and then.

    Attributes:
        local: the folder to write in.
    """

    def __init__(self, remote: epath.Path, name: str) -> None:
        """Starts with the file `name` of the folder `remote`, if it is there."""
        self._remote = remote
        self._scratch = tempfile.TemporaryDirectory(prefix="bert-lamb-", ignore_cleanup_errors=True)
        self.local = Path(self._scratch.name)
        self._copied: dict[Path, tuple[int, int]] = {}
        self._next = time.monotonic() + EVERY_SECONDS
        if (remote / name).exists():
            (self.local / name).write_bytes((remote / name).read_bytes())

    def maybe_copy(self) -> None:
        """Copies if the last time is long enough ago."""
        if time.monotonic() >= self._next:
            self.copy()

    def copy(self) -> None:
        """Copies the files that have changed since they were last copied.

        A copy that fails is tried again next time: metrics are not worth a run.
        """
        for path in sorted(p for p in self.local.rglob("*") if p.is_file()):
            stat = path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
            if self._copied.get(path) == state:
                continue
            target = self._remote / path.relative_to(self.local).as_posix()
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
                self._copied[path] = state
            except OSError as error:
                log.warning("%s cannot be written now (%s); it is tried again", target, error)
        self._next = time.monotonic() + EVERY_SECONDS

    def close(self) -> None:
        """Copies for the last time and removes the local folder."""
        self.copy()
        self._scratch.cleanup()
