"""What the files of a folder hold, for comparing folders."""

import hashlib
from pathlib import Path


def digests(folder: Path) -> dict[str, bytes]:
    """Returns the SHA-256 of every file below `folder` by its path inside."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).digest() for p in files}
