"""Metrics survive kills: what a restarted run writes again is removed first."""

import json
from pathlib import Path

from bert_lamb.training.metrics import MetricsFiles, clock


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
