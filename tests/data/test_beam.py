"""Builds on Apache Beam end in the bytes of local builds."""

import pytest

from bert_lamb.data.building.beam import BeamExecutor
from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.pool import local_executor
from bert_lamb.data.corpus import open_sources
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import ExampleOptions
from tests.digests import digests

pytest.importorskip("apache_beam", reason="needs the extra [beam]")
# Beam warns of other packages' futures and of its own.
pytestmark = pytest.mark.filterwarnings("default")

OPTIONS = BuildOptions(
    ExampleOptions(seq_length=64), heldout=0.1, num_shards=3, block_chars=16_000, chunk_chars=4_000
)


def test_direct_runner_and_local_pools_give_the_same_bytes(tmp_path, tokenizer, make_text):
    files = [str(make_text(tmp_path / f"{i}.txt", documents=150, seed=i)) for i in range(3)]
    sources = open_sources(files)
    for workers in (1, 2, 4):
        with local_executor(workers) as executor:
            build_records(sources, tmp_path / str(workers), tokenizer, OPTIONS, executor=executor)
    beam = BeamExecutor(["--runner=DirectRunner"])
    build_records(sources, tmp_path / "beam", tokenizer, OPTIONS, executor=beam)
    expected = digests(tmp_path / "1")
    for name in ("2", "4", "beam"):
        assert digests(tmp_path / name) == expected


def test_a_fault_in_the_text_keeps_its_message(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"Ba ce.\nBad \xff\xfe.\n\nDi fo.\nGu ka.\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2, byte 11"):
        build_records(
            open_sources([str(tmp_path / "a.txt")]), tmp_path / "out", tokenizer, OPTIONS,
            executor=BeamExecutor(),
        )  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
