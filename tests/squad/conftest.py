"""Small SQuAD files, tokenizers that need no download, and the reference rules."""

import importlib.util
import json
import string
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bert_lamb.data.tokenization import SPECIAL_TOKENS, TextOptions, WordPiece
from bert_lamb.squad.dataset import Dataset
from bert_lamb.squad.reading import read_dataset

WORDS = ["the", "tower", "paris", "is", "in", "1889", "was", "built", "who", "what", "fine"]


@pytest.fixture(scope="session")
def rules() -> ModuleType:
    """tests/reference/squad_rules.py, loaded by path."""
    path = Path(__file__).resolve().parents[1] / "reference" / "squad_rules.py"
    spec = importlib.util.spec_from_file_location("reference_squad_rules", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def letters(options: TextOptions) -> WordPiece:
    """A tokenizer with a token for each ASCII letter, and for few words."""
    characters = string.ascii_letters + string.digits
    inner = [f"##{c}" for c in characters + "éﬁσς\u0301"]
    tokens = [*SPECIAL_TOKENS, *characters, *string.punctuation, *inner, *WORDS, "é", "ﬁ", "文"]
    return WordPiece(tokens, options)


@pytest.fixture(scope="session")
def dev(shared: Path) -> dict[str, Dataset]:
    """The development sets by version."""
    return {v: read_dataset(str(shared / f"data/squad/dev-v{v}.json")) for v in ("1.1", "2.0")}


@pytest.fixture(scope="session")
def tokenizer() -> WordPiece:
    return letters(TextOptions())


@pytest.fixture(scope="session")
def cased() -> WordPiece:
    return letters(TextOptions(lowercase=False))


def qa(id: str, *answers: tuple[str, int], question: str = "who?", **more: Any) -> dict[str, Any]:
    entries = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": question, "answers": entries, **more}


def squad_json(*paragraphs: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    made = [{"context": context, "qas": qas} for context, qas in paragraphs]
    return {"version": "made", "data": [{"title": "T", "paragraphs": made}]}


@pytest.fixture
def make_qa():
    return qa


@pytest.fixture
def write_squad(tmp_path):
    """Writes paragraphs of (context, questions) and returns the file."""

    def write(*paragraphs: tuple[str, list[dict[str, Any]]], name: str = "squad.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(squad_json(*paragraphs)))
        return str(path)

    return write


@pytest.fixture
def make_dataset(write_squad):
    def make(*paragraphs: tuple[str, list[dict[str, Any]]]) -> Dataset:
        return read_dataset(write_squad(*paragraphs))

    return make
