"""Cloud TPU VMs: the commands for three kinds of slices, and a job on workers that are folders."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.launching import AWKWARD, CONFIG, JOB, LAUNCH, ROOT, Shown, shellcheck, stand_in

ZONE = "--zone=us-central2-b"
WORKERS = ["--node=all", "--worker=all"]
SLICES = {
    "a v3-32": ["--accelerator=v3-32"],
    "a v5e-256": ["--accelerator=v5e-256"],
    "two v4-16": ["--accelerator=v4-16", "--num-slices=2"],
}


@pytest.mark.parametrize(
    ("slices", "options"),
    [
        ("a v3-32", {"--accelerator-type=v3-32", "--runtime-version=tpu-ubuntu2204-base",
                     "--node-id=large"}),
        ("a v5e-256", {"--accelerator-type=v5litepod-256", "--node-id=large",
                       "--runtime-version=v2-alpha-tpuv5-lite"}),
        ("two v4-16", {"--accelerator-type=v4-16", "--runtime-version=tpu-ubuntu2204-base",
                       "--node-count=2", "--node-prefix=large"}),
    ],
)  # fmt: skip
def test_create_asks_for_the_slices(
    dry: Callable[..., Shown], slices: str, options: set[str]
) -> None:
    seen = dry("tpu_vm", "create", "large", ZONE, *SLICES[slices], "--spot", "--project=p")
    (command,) = seen.commands
    assert seen.status == 0
    assert command[:6] == ["gcloud", "compute", "tpus", "queued-resources", "create", "large"]
    assert options | {ZONE, "--project=p", "--spot"} < set(command)
    assert sum(word.startswith("--node-") for word in command) == len(
        [option for option in options if option.startswith("--node-")]
    )


@pytest.mark.parametrize("slices", SLICES)
def test_run_ships_the_config_and_starts_every_worker(
    dry: Callable[..., Shown], slices: str
) -> None:
    seen = dry("tpu_vm", "run", "large", ZONE, *SLICES[slices], *JOB)
    make, copy, start = seen.commands
    assert seen.status == 0
    assert make[4] == start[4] == "ssh"
    assert copy[4] == "scp"
    assert {"config.py", "start.sh", "keep_running.sh"} == {Path(w).name for w in copy[5:8]}
    assert copy[8] == "large:bert-lamb/"
    for command in seen.commands:
        assert [w for w in command if w.startswith(("--node", "--worker"))] == WORKERS
    assert start[-1] == "--command=bash bert-lamb/start.sh"
    assert seen.files["config.py"] == (ROOT / CONFIG).read_text()
    assert shellcheck(seen.files["start.sh"]) == ""
    assert "JAX_PLATFORMS=tpu,cpu" in seen.files["start.sh"]


def test_the_other_verbs(dry: Callable[..., Shown]) -> None:
    state = dry("tpu_vm", "status", "large", ZONE).commands
    assert state == dry("tpu_vm", "wait", "large", ZONE).commands
    assert state[0][4:] == ["describe", "large", ZONE, "--format=value(state.state)"]
    wheel, make, copy, install = dry("tpu_vm", "setup", "large", ZONE).commands
    assert wheel[1:4] == ["-m", "pip", "wheel"]
    assert make[4] == install[4] == "ssh"
    assert {"install.sh"} < {Path(word).name for word in copy}
    name = next(Path(word).name for word in copy if word.endswith(".whl"))
    assert install[-1] == f"--command=bash bert-lamb/install.sh {name}"
    (follow,) = dry("tpu_vm", "logs", "large", ZONE, "--node=1", "--worker=3").commands
    assert follow[-3:-1] == ["--node=1", "--worker=3"]
    (gone,) = dry("tpu_vm", "delete", "large", ZONE).commands
    assert gone[4:] == ["delete", "large", ZONE, "--force", "--quiet"]


@pytest.mark.parametrize("verb", ["setup", "run"])
def test_a_dry_run_needs_no_program_and_leaves_no_file(tmp_path: Path, verb: str) -> None:
    more = [*SLICES["two v4-16"], *JOB] if verb == "run" else []
    done = subprocess.run(
        [sys.executable, LAUNCH / "tpu_vm.py", verb, "untouched", ZONE, *more, "--dry-run"],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "$ gcloud" in done.stdout
    assert not (ROOT / "build" / "launch" / "untouched").exists()


# gcloud on workers that are folders: scp copies, ssh runs the command in each.
GCLOUD = r"""
verb=$4 command='' files=() dest=''
for word in "${@:5}"; do
  case $word in
    --command=*) command=${word#--command=} ;;
    --*) ;;
    large) ;;
    large:*) dest=${word#large:} ;;
    *) files+=("$word") ;;
  esac
done
for worker in 0 1; do
  home=$WORKERS/$worker
  mkdir -p "$home"
  if [ "$verb" = scp ]; then cp "${files[@]}" "$home/$dest"; else
    (cd "$home" && WORKER=$worker bash -c "$command") || exit $?
  fi
done
"""
# A run that saves when it is told to stop, and fails once on the first worker.
PROGRAM = r"""
printf '%s\n' "$@" >arguments
printf '%s\n' "$JAX_COMPILATION_CACHE_DIR" "$JAX_PLATFORMS" "$EXTRA" >environment
if [ "$WORKER" = 0 ] && [ ! -e failed ]; then touch failed; exit 75; fi
trap 'touch saved; exit 143' TERM
touch ready
while :; do sleep 0.05; done
"""


def test_a_job_from_start_to_stop(tmp_path: Path) -> None:
    workers = [tmp_path / "workers" / str(index) / "bert-lamb" for index in range(2)]
    stand_in(tmp_path / "bin", "gcloud", GCLOUD)
    for worker in workers:
        stand_in(worker / "venv" / "bin", "bert-lamb", PROGRAM)
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "WORKERS": str(tmp_path / "workers"),
    }

    def launch(verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(LAUNCH)!r}); "
             "import pathlib, tpu_vm; tpu_vm.PAUSE_SECONDS = 0; "
             f"tpu_vm.MADE = pathlib.Path({str(tmp_path)!r}); sys.exit(tpu_vm.main())",
             verb, "large", ZONE, *more],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip

    flags = [*SLICES["two v4-16"], *JOB, "--env", 'EXTRA=it\'s "x" $HOME']
    try:
        started = launch("run", *flags)
        assert started.returncode == 0, started.stderr
        deadline = time.monotonic() + 20
        while not all((worker / "ready").exists() for worker in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for worker in workers:
            assert (worker / "arguments").read_text().splitlines() == [
                "pretrain", "--config=config.py", *JOB[1:],
            ]  # fmt: skip
            cache, platforms, extra = (worker / "environment").read_text().splitlines()
            assert cache == "gs://bucket/runs/compilation-cache"
            assert platforms == "tpu,cpu"
            assert extra == 'it\'s "x" $HOME'
            assert (worker / "config.py").read_text() == (ROOT / CONFIG).read_text()
        again = launch("run", *flags)
        assert again.returncode == 2
        assert "stop it first" in again.stderr
        stopped = launch("stop")
        assert stopped.returncode == 0, stopped.stderr
        assert all((worker / "saved").exists() for worker in workers)
        assert not any((worker / "run.pid").exists() for worker in workers)
        assert "start 1 of at most 20" in (workers[0] / "run.log").read_text()
        assert launch("stop").returncode == 2
    finally:
        for worker in workers:
            if (worker / "run.pid").exists():
                os.kill(int((worker / "run.pid").read_text()), signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "large", ZONE, "--accelerator=v4-17"], "the nearest is v4-16"),
        (["create", "large", ZONE, "--accelerator=v3-32", "--num-slices=2"], "cannot be joined"),
        (["create", "large", ZONE, "--accelerator=v4-16", "--num-slices=-1"], "expected 1 to 1024"),
        (["create", "large", ZONE, "--accelerator=tpu7x-128"], "use gke.py"),
        (["create", "Large_Run", ZONE, "--accelerator=v4-16"], "a-z, 0-9 and -"),
        (["create", "large", ZONE, "--accelerator=v4-16", "--num-slice=2"],
         "did you mean --num-slices?"),
        (["create", "large", ZONE, "--accelerator="], "--accelerator=: expected a value"),
        (["create", "large", "--zone=", "--accelerator=v4-16"], "--zone=: expected a value"),
        (["create", "large\n", ZONE, "--accelerator=v4-16"], "expected printable characters only"),
        (["setup", "large", ZONE, "--wheel=none.whl"], "no such file"),
        (["setup", "large", ZONE, "--wheel=README.md"], "expected a .whl file"),
        (["logs", "large", ZONE, "--node=-1"], "--node=-1: expected 0 or more"),
        (["logs", "large", ZONE, "--worker=٣"], "--worker=٣: expected 0 or more"),
        (["logs", "large", ZONE, "--lines=-5"], "--lines=-5: expected 0 or more"),
        (["stop", "large", ZONE, "--grace-seconds=-1"], "--grace-seconds=-1: expected 1 or more"),
        (["stop", "large", ZONE, AWKWARD], "overrides belong to `run`"),
    ],
)  # fmt: skip
def test_bad_requests_end_with_one_line(
    dry: Callable[..., Shown], arguments: list[str], message: str
) -> None:
    seen = dry("tpu_vm", *arguments)
    assert (seen.status, seen.commands) == (2, [])
    assert message in seen.error
    assert seen.error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--config": "configs/none.py"}, "no such file; see the folder configs/"),
        ({"--workdir": "/tmp/run"}, "4 hosts without a common disk; expected gs://BUCKET/RUN"),
        ({"--workdir": "gs://bucket"}, "expected gs://BUCKET/RUN"),
        ({"--workdir": "gs://bucket/run\ninjected"}, "expected printable characters only"),
        ({"--config.phases[0].heldout": "records/heldout"},
         "give --config.phases[0].heldout=gs://"),
        ({"--config.phases[1].heldout": "s3://b/heldout"}, "phases[1].heldout is 's3://b/heldout'"),
        ({"--config.init_from": "runs/mini"}, "give --config.init_from=gs://"),
        ({"--config.parallel.fsdp": "7"}, "expected a divisor of the 32 devices"),
        ({"--env": "é=1"}, "expected NAME=VALUE"),
        ({"--config.phases[0].records": ""}, "phases[0].records is ''"),
        ({"--config.phases[1].records": "records/seq512"}, "give --config.phases[1].records=gs://"),
        ({"--config.phases[0].record": "gs://b/r"}, "did you mean records?"),
        ({"--env": "A"}, "expected NAME=VALUE"),
        ({"--max-restarts": "-1"}, "expected 0 or more"),
    ],
)  # fmt: skip
def test_a_bad_job_is_refused_before_anything_is_started(
    dry: Callable[..., Shown], change: dict[str, str], message: str
) -> None:
    wanted = dict(word.partition("=")[::2] for word in JOB) | change
    words = [f"{name}={value}" for name, value in wanted.items()]
    seen = dry("tpu_vm", "run", "large", ZONE, *SLICES["a v3-32"], *words)
    assert (seen.status, seen.commands, seen.files) == (2, [], {})
    assert message in seen.error
    assert seen.error.count("\n") == 1


def test_two_cores_of_a_v3_chip_are_two_devices(dry: Callable[..., Shown]) -> None:
    seen = dry(
        "tpu_vm",
        "run",
        "large",
        ZONE,
        *SLICES["a v3-32"],
        *JOB,
        "--config.parallel.data=32",
        "--config.parallel.fsdp=1",
    )
    assert (seen.status, seen.error) == (0, "")


def test_a_config_file_that_is_not_utf8_is_named(dry: Callable[..., Shown], tmp_path: Path) -> None:
    config = tmp_path / "latin.py"
    text = "# -*- coding: latin-1 -*-\n# caf\xe9\n" + (ROOT / CONFIG).read_text()
    config.write_bytes(text.encode("latin-1"))
    seen = dry("tpu_vm", "run", "large", ZONE, *SLICES["a v3-32"], f"--config={config}", *JOB[1:])
    assert (seen.status, seen.commands, seen.files) == (2, [], {})
    assert (
        seen.error
        == f"tpu_vm.py: --config={config}: byte 31 is not UTF-8; save the file as UTF-8\n"
    )


def test_a_fault_of_several_lines_in_the_config_file_is_shown_in_one(
    dry: Callable[..., Shown], tmp_path: Path
) -> None:
    config = tmp_path / "config.py"
    config.write_text("raise ValueError('first\\nsecond')")
    seen = dry("tpu_vm", "run", "large", ZONE, *SLICES["a v3-32"], f"--config={config}", *JOB[1:])
    assert seen.error == f"tpu_vm.py: --config={config}: ValueError: first second\n"


@pytest.mark.parametrize(
    ("target", "reason"), [("/dev/null", "Not a directory"), ("/proc", "No such file")]
)
def test_a_file_that_cannot_be_written_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str, reason: str
) -> None:
    import tpu_vm

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(tpu_vm, "MADE", Path(target))
    assert tpu_vm.main(["run", "large", ZONE, *SLICES["a v3-32"], *JOB]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tpu_vm.py: {target}/large/config.py: {reason}")
    assert error.count("\n") == 1


def test_a_full_disk_ends_with_one_line() -> None:
    from running import LaunchError, Runner

    with pytest.raises(LaunchError, match=r"^/dev/full: No space left on device; check the space"):
        Runner(dry=False).write(Path("/dev/full"), "text")


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    (tmp_path / "gcloud").write_text("no program")
    (tmp_path / "gcloud").chmod(0o755)
    done = subprocess.run(
        [sys.executable, LAUNCH / "tpu_vm.py", "status", "large", ZONE],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "tpu_vm.py: gcloud: cannot be started: Exec format error\n"


def test_without_gcloud_the_fault_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, LAUNCH / "tpu_vm.py", "status", "large", ZONE],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("tpu_vm.py: gcloud: no such program on PATH")


def test_what_is_shown_can_be_pasted(dry: Callable[..., Shown]) -> None:
    command = dry("tpu_vm", "stop", "large", ZONE).commands[0][-1].removeprefix("--command=")
    assert shellcheck(f"#!/usr/bin/env bash\n{command}\n").count("error") == 0
    assert shlex.split(command)[:2] == ["cd", "bert-lamb"]
