"""Every command of docs/operations.md is one that a launcher or `bert-lamb` takes."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.launching import ROOT, Shown

TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:bash)?\n([\s\S]*?)^```$", TEXT, re.M)
LINES = [
    line
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
EXPORTS = [line for line in LINES if line.startswith("export ")]
LAUNCHES = [line for line in LINES if line.startswith("python scripts/launch/")]
DRY = [line for line in LAUNCHES if "/cost.py" not in line]
CLI = [line for line in LINES if line.startswith("bert-lamb ")]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Splits a line as a shell does, with the variables that the guide exports."""
    for line in EXPORTS:
        for name, value in (pair.split("=", 1) for pair in line.split()[1:]):
            monkeypatch.setenv(name, value)

    def split(line: str) -> list[str]:
        found = [os.path.expandvars(word) for word in shlex.split(line)]
        assert not any("$" in word for word in found), f"not exported before: {line}"
        return found

    return split


def test_the_guide_shows_every_launcher_and_verb() -> None:
    shown = {tuple(line.split()[1:3]) for line in DRY}
    for program, verbs in {
        "tpu_vm": "create wait setup run logs stop status delete",
        "gke": "image nodepools apply status logs delete",
        "slurm": "submit status logs stop",
    }.items():
        assert {verb for name, verb in shown if program in name} == set(verbs.split()), program


@pytest.mark.parametrize("line", sorted(set(DRY)), ids=lambda line: " ".join(line.split()[1:3]))
def test_a_launch_command_is_accepted(
    line: str, words: Callable[[str], list[str]], dry: Callable[..., Shown]
) -> None:
    _, script, *arguments = words(line)
    assert (ROOT / script).is_file()
    seen = dry(Path(script).stem, *arguments)
    assert (seen.status, seen.error) == (0, ""), line
    assert seen.commands


@pytest.mark.parametrize("line", CLI, ids=lambda line: " ".join(line.split()[:3]))
def test_a_command_of_the_package_is_accepted(line: str, words: Callable[[str], list[str]]) -> None:
    from bert_lamb.cli.command import _parser

    known, rest = _parser().parse_known_args(words(line)[1:])
    assert all(word.startswith("--config.") for word in rest), rest
    assert known.verb


def test_the_table_of_costs_is_what_the_command_prints(
    words: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cost

    (line,) = (line for line in LAUNCHES if "/cost.py" in line)
    monkeypatch.chdir(ROOT)
    assert cost.main(words(line)[2:]) == 0
    assert capsys.readouterr().out.partition("\n\n")[2].strip() in TEXT


def test_quotas_are_the_sizes_of_the_slices() -> None:
    from accelerators import find_slice

    rows = re.findall(r"^\| (?:(\d) x )?(v\d\w*-\d+) \| `TPUV\w+` \| ([\d,]+) (\w+).*\| (\d+) \|$",
                      TEXT, re.M)  # fmt: skip
    assert len(rows) == 6
    for count, name, number, unit, hosts in rows:
        slice_, times = find_slice(name), int(count or 1)
        each = slice_.chips * (slice_.generation.counts if unit == "TensorCores" else 1)
        assert int(number.replace(",", "")) == each * times, name
        assert int(hosts) == slice_.hosts * times, name


def test_files_that_the_guide_links_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


def test_messages_that_the_guide_explains_are_those_of_the_code() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in [*(ROOT / "bert_lamb").rglob("*.py"), *(ROOT / "scripts/launch").iterdir()]
        if path.is_file()
    )
    for message in (
        "(by config.parallel.stall_seconds = ",
        "failed, or lost another host",
        "does not run what host 0 runs",
        "gave up after",
        "holds a run with another configuration",
        "unreadable-",
        "is running; stop it first",
    ):
        assert message in code, message
        assert message in TEXT, message
