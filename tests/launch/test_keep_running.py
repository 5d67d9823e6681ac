"""The loop that keeps a run going on a TPU VM, as bash runs it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from running import FINAL

from tests.launch.launching import AWKWARD, LAUNCH, stand_in


def _loop(folder: Path, body: str, restarts: int = 5, pause: int = 0) -> subprocess.Popen[str]:
    stand_in(folder, "job", body)
    return subprocess.Popen(
        ["bash", LAUNCH / "keep_running.sh", folder / "pid", "1 2", str(restarts), str(pause),
         folder / "job", "pretrain", AWKWARD],
        cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def test_two_failures_then_success_with_the_arguments_untouched(tmp_path: Path) -> None:
    loop = _loop(
        tmp_path, 'printf "%s\\n" "$@" >>seen; [ "$(grep -c pretrain seen)" -eq 3 ] || exit 75'
    )
    out, _ = loop.communicate(timeout=20)
    assert loop.returncode == 0
    assert (tmp_path / "seen").read_text() == f"pretrain\n{AWKWARD}\n" * 3
    assert out.count("keep_running: status 75") == 2
    assert not (tmp_path / "pid").exists()


@pytest.mark.parametrize("status", FINAL)
def test_a_fault_that_no_repetition_mends_is_not_repeated(tmp_path: Path, status: int) -> None:
    loop = _loop(tmp_path, f"echo x >>seen; exit {status}")
    loop.communicate(timeout=20)
    assert loop.returncode == status
    assert (tmp_path / "seen").read_text() == "x\n"


def test_it_gives_up_after_the_last_restart_with_the_status_of_the_command(tmp_path: Path) -> None:
    loop = _loop(tmp_path, "echo x >>seen; exit 134", restarts=2)
    out, _ = loop.communicate(timeout=20)
    assert loop.returncode == 134
    assert (tmp_path / "seen").read_text() == "x\n" * 3
    assert "gave up after 2 restarts" in out


def test_sigterm_is_passed_on_and_the_save_waited_for(tmp_path: Path) -> None:
    body = "trap 'sleep 0.5; touch saved; exit 143' TERM; touch ready; while :; do sleep 0.05; done"
    loop = _loop(tmp_path, body)
    _wait_for(tmp_path / "ready")
    assert (tmp_path / "pid").read_text().strip() == str(loop.pid)
    loop.send_signal(signal.SIGTERM)
    out, _ = loop.communicate(timeout=20)
    assert (tmp_path / "saved").exists()
    assert loop.returncode == 143
    assert "start 1" not in out


def test_a_peer_that_was_told_to_stop_does_not_stop_this_host(tmp_path: Path) -> None:
    # All hosts leave with 143 when one of them got SIGTERM; only that one is to stay away.
    loop = _loop(tmp_path, "[ -e first ] && exit 0; touch first; exit 143")
    out, _ = loop.communicate(timeout=20)
    assert loop.returncode == 0
    assert "status 143" in out


def test_sigterm_between_two_tries_ends_the_loop_at_once(tmp_path: Path) -> None:
    loop = _loop(tmp_path, "touch failed; exit 75", pause=60)
    _wait_for(tmp_path / "failed")
    time.sleep(0.3)
    began = time.monotonic()
    loop.send_signal(signal.SIGTERM)
    loop.wait(timeout=20)
    assert time.monotonic() - began < 10
    assert loop.returncode == 75
    loop.stdout and loop.stdout.close()


def test_installing_asks_for_the_tpu_extra_of_the_shipped_wheel(tmp_path: Path) -> None:
    """The calls of install.sh; uv and python3 are stand-ins that write down theirs."""
    (tmp_path / "install.sh").write_bytes((LAUNCH / "install.sh").read_bytes())
    stand_in(tmp_path / "bin", "python3", f'[ "$2" = site ] && echo "{tmp_path}/base"; exit 0')
    stand_in(tmp_path / "base" / "bin", "uv", f'printf "%s\\n" "$@" >>{tmp_path}/uv')
    stand_in(tmp_path / "venv" / "bin", "bert-lamb", "echo 0.1.0")
    done = subprocess.run(
        ["bash", tmp_path / "install.sh", "a b.whl"], cwd="/", text=True, capture_output=True,
        env=os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0.1.0\n")
    assert "./a b.whl[tpu]" in (tmp_path / "uv").read_text().splitlines()


def test_a_failed_installation_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "install.sh").write_bytes((LAUNCH / "install.sh").read_bytes())
    stand_in(tmp_path / "bin", "python3", "exit 1")
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(
            ["bash", tmp_path / "install.sh", "a.whl"], check=True,
            env=os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        )  # fmt: skip
