"""Small corpora, a vocabulary and a record set, made once for the tests of this folder."""

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest

from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.corpus import ReadStats, open_sources
from bert_lamb.data.examples import ExampleOptions
from bert_lamb.data.tokenization import Tokenizer, train_wordpiece

SYLLABLES = ["ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo"]


def write_text(path: Path, documents: int, sentences: int = 12, seed: int = 0) -> Path:
    """Writes made-up prose: so many documents, each of so many sentences on average."""
    rng = random.Random(seed)
    lexicon = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(800)]
    with path.open("w") as out:
        for _ in range(documents):
            for _ in range(rng.randint(sentences // 2, 2 * sentences - sentences // 2)):
                words = rng.choices(lexicon, k=rng.randint(4, 24))
                out.write(" ".join(words).capitalize() + ".\n")
            out.write("\n")
    return path


@pytest.fixture(scope="session")
def make_text():
    return write_text


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "made up.txt", documents=60)


@pytest.fixture(scope="session")
def tokenizer(text_file) -> Tokenizer:
    documents = open_sources([str(text_file)])[0].read(ReadStats())
    return train_wordpiece((document.text for document in documents), vocab_size=300)


@pytest.fixture(scope="session")
def records(text_file, tokenizer, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("records") / "set"
    options = BuildOptions(ExampleOptions(seq_length=64), seed=3, num_shards=4)
    build_records(open_sources([str(text_file)]), output, tokenizer, options)
    return output


@pytest.fixture(scope="session")
def google_wordpiece() -> ModuleType:
    """tests/reference/wordpiece.py, loaded by path."""
    path = Path(__file__).resolve().parents[1] / "reference" / "wordpiece.py"
    spec = importlib.util.spec_from_file_location("reference_wordpiece", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
