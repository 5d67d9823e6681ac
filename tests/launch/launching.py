"""What the tests of the launchers share: a job, a dry run as data, programs that stand in."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "scripts" / "launch"
CONFIG = "configs/bert_large_64k_32k.py"
# A space, both quotes and what shells and Kubernetes replace, which have to arrive as they are.
AWKWARD = '--config.phases[0].records=gs://b/with space/it\'s "$(HOME)" $HOME $$ $$(A)'
JOB = (
    f"--config={CONFIG}", "--workdir=gs://bucket/runs/large", AWKWARD,
    "--config.phases[1].records=gs://bucket/seq512",
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What a launcher printed.

    Attributes:
        status: of the launcher.
        commands: as lists of words, in order.
        files: text by file name.
        error: standard error.
    """

    status: int
    commands: list[list[str]]
    files: dict[str, str]
    error: str


def parse(status: int, out: str, error: str) -> Shown:
    files = {
        Path(path).name: text
        for path, text in re.findall(r"^# file (.+)\n([\s\S]*?)^# end of .+\n", out, re.M)
    }
    rest = re.sub(r"^# file .+\n[\s\S]*?^# end of .+\n", "", out, flags=re.M)
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)", rest, re.M)
    return Shown(status, [shlex.split(text.replace("\\\n", "")) for text in found], files, error)


def expanded(text: str, variables: dict[str, str]) -> str:
    """Replaces variables as Kubernetes does in a container's command and environment.

    References:
        Kubernetes API reference, Container v1 core, `command` and EnvVar `value`: $(NAME) of a
        defined variable is replaced, $$ becomes $, all else stays.
    """
    return re.sub(
        r"\$(\$|\((\w+)\))",
        lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]),
        text,
    )


def stand_in(folder: Path, name: str, body: str) -> None:
    """Puts a bash script on a PATH folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def shellcheck(text: str) -> str:
    """Returns what shellcheck says about a generated bash script; "" if nothing.

    Without SC2016: arguments with a $ in them are quoted so that no shell reads it.
    """
    program = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run(
        [program, "--shell=bash", "--exclude=SC2016", "-"],
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
