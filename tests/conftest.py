"""Eight virtual CPU devices for every test; the shared corpora where they are at hand."""

import os
from pathlib import Path
from typing import Any

# Tests run on CPUs, also where libtpu is installed to compile for absent TPUs.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 8)
# Most of the suite's time is compilation, much of it of the same programs.
CACHE = Path(__file__).resolve().parents[1] / "build" / "jax-cache"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

# Tests that compile most, or start processes, come first: two workers then end together.
LONG = ("multi_device", "training", "finetuning", "model", "test_configs_compile.py", "planning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts tests by their folder, those of `LONG` before all others."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(here).parts[0]
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=place)


SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the real data in {SHARED}, which is absent here")
    return SHARED


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of real English: some of Python's documentation topics, one document each."""
    from pydoc_data.topics import topics

    documents = []
    for name in sorted(topics)[:40]:
        paragraphs = [" ".join(part.split()) for part in topics[name].split("\n\n")]
        documents.append("\n".join(part for part in paragraphs if part[:1].isalpha())[:3000])
    path = tmp_path_factory.mktemp("prose") / "topics.txt"
    path.write_text("\n\n".join(filter(None, documents)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def records(prose: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Record sets (folders train/ and heldout/) by sequence length, of one small vocabulary."""
    from bert_lamb.data.building.build import build_records
    from bert_lamb.data.building.options import BuildOptions
    from bert_lamb.data.corpus import ReadStats, open_sources
    from bert_lamb.data.examples import ExampleOptions
    from bert_lamb.data.tokenization import train_wordpiece

    folder = tmp_path_factory.mktemp("records")
    sources = open_sources([str(prose)])
    tokenizer = train_wordpiece(
        (document.text for source in sources for document in source.read(ReadStats())), 500
    )
    for length in (16, 32):
        options = BuildOptions(ExampleOptions(seq_length=length), heldout=0.1, num_shards=2)
        build_records(sources, folder / f"seq{length}", tokenizer, options)
    return {length: folder / f"seq{length}" for length in (16, 32)}


@pytest.fixture(scope="session")
def small(records: dict[int, Path]) -> dict[str, Any]:
    """Values of a configuration of two phases, seconds long; tests change copies of it."""
    return {
        "seed": 3,
        "model": {
            "num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32,
            "max_positions": 32, "vocab_multiple": 8, "scan_layers": True,
        },
        "phases": [
            {
                "records": str(records[16] / "train"), "heldout": str(records[16] / "heldout"),
                "seq_length": 16, "global_batch": 8, "steps": 6, "max_predictions": 3,
                "peak_lr": 1e-2, "warmup_steps": 2,
            },
            {
                "records": str(records[32] / "train"), "heldout": str(records[32] / "heldout"),
                "seq_length": 32, "global_batch": 8, "steps": 4, "max_predictions": 5,
                "peak_lr": 5e-3, "warmup_steps": 1, "carry": "weights_and_moments",
            },
        ],
        "checkpoint": {"every_steps": 1, "keep": 3},
        "evaluation": {"batch": 8, "max_examples": 16},
        "logging": {"every_steps": 1, "tensorboard": False},
    }  # fmt: skip
