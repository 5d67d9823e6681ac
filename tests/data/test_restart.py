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
from bert_lamb.data.tokenization import load_tokenizer

if __name__ == "__main__":
    text, vocab, output, workers = sys.argv[1:]
    options = BuildOptions(
        ExampleOptions(seq_length=64), heldout=0.1, num_shards=5, block_chars=10_000,
        chunk_chars=4_000,
    )
    with local_executor(int(workers)) as executor:
        build_records(
            open_sources([text]), output, load_tokenizer(vocab), options, executor=executor,
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


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
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


@pytest.mark.parametrize("stage", ["make", "write"])
@pytest.mark.parametrize("how", ["empty", "half", "flip", "gone"])
@pytest.mark.parametrize("pattern", ["texts/*.zst", "texts/*.hashes", "texts/*.json",
                                     "parts/*.train", "parts/*.json", "result/*.array_record",
                                     "shards/train-*.json"])  # fmt: skip
def test_damaged_work_never_becomes_other_records(
    tmp_path, text_file, tokenizer, stage, how, pattern
):
    if (how, pattern) == ("flip", "result/*.array_record"):
        pytest.skip("a shard holds hashes of its own, which whoever reads it checks")
    options = BuildOptions(
        ExampleOptions(seq_length=64), num_shards=3, block_chars=10_000, chunk_chars=4_000
    )
    sources = open_sources([str(text_file)])
    build_records(sources, tmp_path / "whole", tokenizer, options)
    seen = []

    def stop(progress):
        seen.append(progress.stage)
        if seen.count(stage) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_records(sources, tmp_path / "out", tokenizer, options, progress=stop)
    for file in sorted((tmp_path / ".out.building").glob(pattern))[:1]:
        data = bytearray(file.read_bytes())
        if how == "gone":
            file.unlink()
        else:
            if data and how == "flip":
                data[len(data) // 2] ^= 1
            file.write_bytes({"empty": b"", "half": data[: len(data) // 2], "flip": data}[how])
    try:
        build_records(sources, tmp_path / "out", tokenizer, options)
    except DataError as error:
        assert "damaged since an interrupted build wrote it" in str(error)  # noqa: PT017
        build_records(sources, tmp_path / "out", tokenizer, options)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_what_appears_in_the_place_of_the_output_is_not_replaced(tmp_path, text_file, tokenizer):
    options = BuildOptions(ExampleOptions(seq_length=64))
    sources = open_sources([str(text_file)])
    precious = tmp_path / "out" / "precious.txt"

    def appear(progress):
        if progress.stage == "write":
            precious.parent.mkdir(exist_ok=True)
            precious.write_text("x")

    with pytest.raises(DataError, match="exists and is not a record set"):
        build_records(sources, tmp_path / "out", tokenizer, options, progress=appear)
    assert precious.read_text() == "x"
    precious.unlink()
    build_records(sources, tmp_path / "out", tokenizer, options)
    assert not (tmp_path / ".out.building").exists()


def test_a_folder_of_another_making_is_not_worked_in(tmp_path, text_file, tokenizer):
    mine = tmp_path / ".out.building" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("x")
    with pytest.raises(DataError, match="holds files of something else"):
        build_records(
            open_sources([str(text_file)]), tmp_path / "out", tokenizer,
            BuildOptions(ExampleOptions(seq_length=64)),
        )  # fmt: skip
    assert mine.read_text() == "x"


def test_outputs_that_cannot_be_replaced_are_named_first(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    monkeypatch.chdir(tmp_path / "empty")
    for output, message in [
        (".", "present directory or a mount point"),
        ("/", "present directory or a mount point"),
        ("nowhere://x/y", "this kind of address cannot be written here"),
        ("\udcff", "not UTF-8"),
    ]:
        with pytest.raises(DataError, match=message), workplace(output, False, {}):
            pass
    monkeypatch.chdir(tmp_path)
    with workplace("link", False, {}) as place:
        assert str(place.output) == str(tmp_path / "empty")
        place.finish(False)


def test_a_source_changed_at_equal_size_is_noticed(tmp_path, tokenizer):
    file = tmp_path / "a.txt"
    file.write_text("Ba ce.\n\nDi fo.\n")

    def stop(progress):
        raise KeyboardInterrupt

    def build(progress=None):
        build_records(
            open_sources([str(file)]), tmp_path / "out", tokenizer,
            BuildOptions(ExampleOptions(seq_length=64)), progress=progress,
        )  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        build(stop)
    file.write_text("Ba ce.\n\nDi gu.\n")
    with pytest.raises(DataError, match="interrupted build with other sources waits"):
        build()


def test_work_is_kept_when_a_file_cannot_be_read_any_more(
    tmp_path, make_text, tokenizer, monkeypatch
):
    monkeypatch.setattr("bert_lamb.data.building.gather.UNIT_BYTES", 1)
    files = [make_text(tmp_path / f"{i}.txt", documents=30, seed=i) for i in range(3)]
    options = BuildOptions(ExampleOptions(seq_length=64))
    sources = open_sources(list(map(str, files)))
    hidden = tmp_path / "hidden"

    def hide(progress):
        if files[2].exists():
            files[2].rename(hidden)

    with pytest.raises(DataError, match=r"2\.txt: cannot be read"):
        build_records(sources, tmp_path / "out", tokenizer, options, progress=hide)
    hidden.rename(files[2])
    done = len(list((tmp_path / ".out.building" / "texts").glob("*.json")))
    assert done == 2
    build_records(sources, tmp_path / "out", tokenizer, options)
