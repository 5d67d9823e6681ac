"""The launchers as modules."""

import sys
from collections.abc import Callable
from importlib import import_module

import pytest

from tests.launch.launching import LAUNCH, ROOT, Shown, parse

sys.path.insert(0, str(LAUNCH))


@pytest.fixture
def dry(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Shown]:
    """Runs a launcher with --dry-run, in the root of the checkout; it may start no program."""
    monkeypatch.chdir(ROOT)

    def refuse(*_: object, **__: object) -> str:
        pytest.fail("a dry run started a program")

    def run(program: str, *arguments: str) -> Shown:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            patched.setenv("PATH", "")
            patched.setattr("running._checked", refuse)
            try:
                status = import_module(program).main([*arguments, "--dry-run"])
            except SystemExit as end:
                status = int(end.code or 0)
        return parse(status, *capsys.readouterr())

    return run
