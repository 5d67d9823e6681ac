"""Every fine-tuning file under configs/: it says how to run it, and trains a step, shrunk."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from bert_lamb.cli import main

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = [*sorted(CONFIGS.glob("squad*.py")), *sorted(CONFIGS.glob("glue*.py"))]
# The other files of SQuAD differ from it in numbers alone, which a dry run reads, too; test_glue.py
# trains classifiers.
QUICK = ("squad_v2",)


def each_file() -> list[Any]:
    slow = [pytest.mark.slow]
    return [pytest.param(path, marks=[] if path.stem in QUICK else slow, id=path.stem)
            for path in FILES]  # fmt: skip


@pytest.mark.parametrize("path", each_file())
def test_every_file_trains_a_step(
    path: Path, pretrained: Path, data: dict[str, str], tmp_path: Path
):
    flags, workdir = shrunk(path, pretrained, data, tmp_path), tmp_path / "run"
    assert main([verb_of(path), "train", f"--config={path}", f"--workdir={workdir}", *flags]) == 0
    lines = list(map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines()))
    assert [line["step"] for line in lines if line["kind"] == "eval"][-1] >= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_valid_and_says_how_to_run_it(
    path: Path, pretrained: Path, data: dict[str, str], tmp_path: Path
):
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert f"bert-lamb {verb_of(path)} train --config=configs/{path.name}" in text
    assert "Hardware:" in text
    flags = shrunk(path, pretrained, data, tmp_path)
    args = [verb_of(path), "train", f"--config={path}", f"--workdir={tmp_path}", "--dry-run"]
    assert main([*args, *flags]) == 0


def verb_of(path: Path) -> str:
    return path.stem.partition("_")[0]


def shrunk(path: Path, pretrained: Path, data: dict[str, str], folder: Path) -> list[str]:
    """Flags that make a file's run seconds long."""
    changes: dict[str, Any] = {
        "init_from": pretrained, "global_batch": 8, "evaluation.batch": 8, "epochs": 0.01,
        "features.seq_length": 24, "model.scan_layers": True,
    }  # fmt: skip
    if verb_of(path) == "squad":
        version = "2.0" if "v2" in path.stem else "1.1"
        changes |= {"features.stride": 8, "features.max_query": 4}
        changes |= {split: data[f"{version} {split}"] for split in ("train", "dev")}
    else:
        table = folder / "dev.tsv"
        table.write_text(
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\ta\tb\n0\t3\t4\tc\td\n"
        )
        train = folder / "train.tsv"
        train.write_text(table.read_text() + "1\t5\t6\tthe class\tthe\n")
        changes |= {"train": train, "dev": table}
    return [f"--config.{key}={value}" for key, value in changes.items()]
