"""Every shell script of the repository under shellcheck."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.launching import ROOT, shellcheck

SCRIPTS = sorted([*(ROOT / "scripts").rglob("*.sh"), ROOT / ".ci" / "run"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_shellcheck_finds_what_is_wrong() -> None:
    assert "SC2086" in shellcheck("#!/usr/bin/env bash\nrm $1\n")
