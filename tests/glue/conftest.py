"""Small tables, and a tokenizer that needs no download."""

import string
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_lamb.data.tokenization import SPECIAL_TOKENS, WordPiece
from bert_lamb.glue.tasks import Task, custom_task


@pytest.fixture(scope="session")
def tokenizer() -> WordPiece:
    """A token for each lower-case letter, at the beginning of a word and inside."""
    letters = string.ascii_lowercase
    return WordPiece([*SPECIAL_TOKENS, *letters, *(f"##{c}" for c in letters), '"', "."])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes lines of fields, or bytes, and returns the file."""

    def write(*lines: str | bytes, name: str = "data.tsv") -> str:
        path = tmp_path / name
        parts = [line if isinstance(line, bytes) else f"{line}\n".encode() for line in lines]
        path.write_bytes(b"".join(parts))
        return str(path)

    return write


@pytest.fixture(scope="session")
def pair_task() -> Task:
    return custom_task(["a", "b"], "gold", name="pairs")
