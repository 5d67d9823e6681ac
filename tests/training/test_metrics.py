"""Metrics survive kills: what a restarted run writes again is removed first."""

import json
from pathlib import Path

import fsspec
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem

from bert_lamb.training.metrics import MetricsFiles, clock
from bert_lamb.training.mirror import Mirror


def _write(workdir: Path, start: int, steps: range, tensorboard: bool = False) -> None:
    files = MetricsFiles(workdir, start=start, tensorboard=tensorboard)
    for step in steps:
        files.write("train", step, {"loss": 1 / step, "peak_share": None})
    files.close()


def test_lines_after_the_restored_step_are_replaced(tmp_path):
    _write(tmp_path, 0, range(1, 8))
    _write(tmp_path, 5, range(6, 11))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 11))


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path):
    _write(tmp_path, 0, range(1, 4))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 3, "lo')
    _write(tmp_path, 3, range(4, 5))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_tensorboard_files_are_written(tmp_path):
    _write(tmp_path, 0, range(1, 4), tensorboard=True)
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_clock():
    assert [clock(s) for s in (0, 59.6, 3725)] == ["0:00:00", "0:01:00", "1:02:05"]


def test_a_remote_working_directory_gets_the_files_of_a_local_one(tmp_path, monkeypatch):
    """The bucket is fsspec's in-memory file system under the name of a remote one."""

    class Bucket(MemoryFileSystem):
        protocol = ("az",)

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(str(path).replace("az://", "memory://"))

    fsspec.register_implementation("az", Bucket, clobber=True)
    fsspec.filesystem("az", skip_instance_cache=True)
    remote = epath.Path("az://bucket/run")
    _write(remote, 0, range(1, 8), tensorboard=True)
    _write(remote, 5, range(6, 11), tensorboard=True)
    lines = (remote / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 11))
    assert list((remote / "tensorboard").iterdir())

    mirror = Mirror(remote, "metrics.jsonl")
    monkeypatch.setattr(Bucket, "_open", _refuse)
    (mirror.local / "more").write_text("x")
    mirror.copy()  # says so, and does not end the run
    monkeypatch.undo()
    mirror.close()
    assert (remote / "more").read_text() == "x"


def _refuse(*_args, **_options):
    raise OSError("no quota")
