"""A build that is killed goes on where it was, and ends with the same bytes."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.workplace import workplace
from bert_lamb.data.corpus import open_sources
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples import ExampleOptions
from tests.digests import digests

BUILD = """
import json, sys
from bert_lamb.data.building.build import build_records
from bert_lamb.data.building.options import BuildOptions
from bert_lamb.data.building.pool import local_executor
from bert_lamb.data.corpus import open_sources
from bert_lamb.data.examples import ExampleOptions
from bert_lamb.data.tokenization import Tokenizer

if __name__ == "__main__":
    text, vocab, output, workers = sys.argv[1:]
    options = BuildOptions(
        ExampleOptions(seq_length=64), heldout=0.1, num_shards=5, block_chars=10_000,
        chunk_chars=4_000,
    )
    with local_executor(int(workers)) as executor:
        build_records(
            open_sources([text]), output, Tokenizer.load(vocab), options, executor=executor,
            progress=lambda p: print(p.stage, flush=True),
        )
"""


@pytest.fixture
def corpus(tmp_path, make_text, tokenizer):
    tokenizer.save(tmp_path / "vocab")
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    text = make_text(tmp_path / "text.txt", documents=1_500, seed=2)

    def start(output, workers):
        command = [sys.executable, script, text, tmp_path / "vocab", tmp_path / output, workers]
        return subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    return start


@pytest.mark.parametrize("workers", [1, 2])
def test_builder_killed_five_times_gives_the_same_bytes(tmp_path, corpus, workers):
    """Twice while it reads, twice while it makes examples, once while it writes."""
    whole = corpus("whole", workers)
    steps = whole.communicate()[0].split()
    assert whole.returncode == 0
    assert set(steps) == {"read", "make", "write"}
    rng = random.Random(workers)
    for stage in ("read", "read", "make", "make", "write"):
        process = corpus("killed", workers)
        most = steps.count(stage) // 3 if workers == 1 else 2
        for _ in range(rng.randint(1, max(1, most))):
            while process.stdout.readline().strip() not in (stage, ""):
                pass
        os.kill(process.pid, signal.SIGKILL)  # the main process alone: its workers must follow
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        assert not (tmp_path / "killed").exists()
    last = corpus("killed", workers)
    again = last.communicate()[0].split()
    assert last.returncode == 0
    if workers == 1:
        assert again.count("make") < steps.count("make") / 2
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert not list(tmp_path.glob(".killed*"))


def test_interrupted_build_with_other_options_is_kept_unless_given_up(
    tmp_path, text_file, tokenizer
):
    def build(seed, overwrite=False, progress=None):
        build_records(
            open_sources([str(text_file)]), tmp_path / "out", tokenizer,
            BuildOptions(ExampleOptions(seq_length=64), seed=seed), overwrite=overwrite,
            progress=progress,
        )  # fmt: skip

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(seed=1, progress=stop)
    waiting = digests(tmp_path / ".out.building")
    with pytest.raises(DataError, match=r"interrupted build with other options waits"):
        build(seed=2)
    assert digests(tmp_path / ".out.building") == waiting
    build(seed=2, overwrite=True)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["seed"] == 2
    assert not (tmp_path / ".out.building").exists()


def test_two_builds_do_not_make_one_output(tmp_path):
    with (
        workplace(str(tmp_path / "out"), False, {}),
        pytest.raises(DataError, match="another build is making it"),
        workplace(str(tmp_path / "out"), False, {}),
    ):
        pass
