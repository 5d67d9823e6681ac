"""Slurm: the batch file as bash runs it, with stand-ins for srun and scontrol."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.launching import CONFIG, JOB, LAUNCH, ROOT, Shown, shellcheck, stand_in

NODES = ("--nodes=2", "--gpus-per-node=8")
# What srun does here: leaves its own options aside and runs the program once.
SRUN = r"""
printf '%s\n' "$@" >srun
while [[ $1 == --* ]]; do shift; done
"$@"
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_one_process_a_gpu_and_sigterm_to_the_processes(
    dry: Callable[..., Shown], nodes: int
) -> None:
    seen = dry(
        "slurm", "submit", "large", f"--nodes={nodes}", "--gpus-per-node=8", "--partition=h100",
        "--cpus-per-task=12", "--grace-seconds=600", "--sbatch=--comment=a b", *JOB,
    )  # fmt: skip
    script = seen.files["job.sbatch"]
    options = [line.split(" ", 1)[1] for line in script.splitlines() if line.startswith("#SBATCH")]
    assert seen.status == 0
    assert {
        f"--nodes={nodes}", "--ntasks-per-node=8", "--gpus-per-node=8", "--partition=h100",
        "--cpus-per-task=12", "--signal=TERM@600", "--requeue", "--open-mode=append",
        "'--comment=a b'",
    } < set(options)  # fmt: skip
    # Directives after the first command are not read.
    assert script.index("#SBATCH") < script.index("set -uo")
    assert script.rindex("#SBATCH") < script.index("set -uo")
    assert shellcheck(script) == ""
    assert seen.files["config.py"] == (ROOT / CONFIG).read_text()
    assert seen.commands[0][0] == "sbatch"
    assert "JAX_PLATFORMS=cuda,cpu" in script
    assert "JAX_COMPILATION_CACHE_DIR=gs://bucket/runs/compilation-cache" in script


def _job(
    dry: Callable[..., Shown], folder: Path, program: str, restarts: int = 0
) -> subprocess.Popen[str]:
    seen = dry("slurm", "submit", "large", *NODES, f"--venv={folder / 'a venv'}", *JOB)
    (folder / "job.sbatch").write_text(seen.files["job.sbatch"])
    stand_in(folder / "bin", "srun", SRUN)
    stand_in(folder / "bin", "scontrol", 'echo "$@" >scontrol')
    stand_in(folder / "a venv" / "bin", "bert-lamb", program)
    return subprocess.Popen(
        ["bash", folder / "job.sbatch"], cwd=folder, stdout=subprocess.PIPE, text=True,
        env=os.environ | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
            "SLURM_RESTART_COUNT": str(restarts),
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "restarts", "queued_again"),
    [(0, 0, False), (1, 0, False), (2, 0, False), (75, 0, True), (143, 3, True), (75, 20, False)],
)
def test_the_job_is_queued_again_unless_it_is_done_or_hopeless(
    dry: Callable[..., Shown], tmp_path: Path, status: int, restarts: int, queued_again: bool
) -> None:
    job = _job(dry, tmp_path, f'printf "%s\\n" "$@" >arguments; exit {status}', restarts)
    out, _ = job.communicate(timeout=20)
    assert job.returncode == status
    assert (tmp_path / "scontrol").exists() == queued_again
    if queued_again:
        assert (tmp_path / "scontrol").read_text() == "requeue 7\n"
    assert f"status {status}, {restarts} restarts" in out
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[0] == "pretrain"
    assert arguments[2:] == list(JOB[1:])
    assert "--gpu-bind=none" in (tmp_path / "srun").read_text()


@pytest.mark.parametrize("whole_job", [False, True])
def test_sigterm_saves_and_queues_again(
    dry: Callable[..., Shown], tmp_path: Path, whole_job: bool
) -> None:
    body = (
        "trap 'sleep 0.3; touch saved; exit 143' TERM; echo $$ >pid.new; mv pid.new pid; "
        "while :; do sleep 0.05; done"
    )
    job = _job(dry, tmp_path, body)
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if whole_job:
        job.send_signal(signal.SIGTERM)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    job.communicate(timeout=20)
    assert (tmp_path / "saved").exists()
    assert job.returncode == 143
    assert (tmp_path / "scontrol").read_text() == "requeue 7\n"


def test_stop_forbids_the_next_start_before_it_sends_sigterm(dry: Callable[..., Shown]) -> None:
    find, forbid, send = dry("slurm", "stop", "large").commands
    assert find[:2] == ["squeue", "--me"]
    assert forbid == ["scontrol", "update", "JobId=JOBID", "Requeue=0"]
    assert send == ["scancel", "--signal=TERM", "JOBID"]


def test_a_dry_run_needs_no_program_and_leaves_no_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, LAUNCH / "slurm.py", "submit", "untouched", *NODES, *JOB, "--dry-run"],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "$ sbatch" in done.stdout
    assert not (ROOT / "build" / "launch" / "untouched").exists()


def test_the_other_verbs(dry: Callable[..., Shown]) -> None:
    assert dry("slurm", "status", "large").commands == [["squeue", "--me", "--name=large"]]
    (follow,) = dry("slurm", "logs", "large", "--lines=7").commands
    assert follow[:4] == ["tail", "-n", "7", "-F"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes=0", "--gpus-per-node=8", *JOB], "--nodes=0: expected 1 or more"),
        (["--nodes=1", "--gpus-per-node=-8", *JOB], "--gpus-per-node=-8: expected 1 or more"),
        ([*NODES, *JOB[:1], "--workdir=runs/large", *JOB[2:]], "a full path on a shared disk"),
        ([*NODES, *JOB[:1], "--workdir=s3://b/run", *JOB[2:]], "a full path on a shared disk"),
        ([*NODES, *JOB[:1], "--workdir=/w", *JOB[2:]], "--workdir=/w: no folder above it"),
        ([*NODES, *JOB, "--cache=cache"], "--cache=cache: expected gs://BUCKET/FOLDER"),
        ([*NODES, *JOB, "--grace-seconds=-5"], "--grace-seconds=-5: expected 1 to 65535"),
        ([*NODES, *JOB, "--grace-seconds=65536"], "--grace-seconds=65536: expected 1 to 65535"),
        ([*NODES, *JOB, "--cpus-per-task=-3"], "--cpus-per-task=-3: expected 1 or more"),
        ([*NODES, *JOB, "--time="], "--time=: expected MINUTES"),
        ([*NODES, *JOB, "--time=1 day"], "--time=1 day: expected MINUTES"),
        ([*NODES, *JOB, "--venv="], "--venv=: expected a value"),
        ([*NODES, *JOB, "--sbatch="], "--sbatch=: expected an option of sbatch"),
        (["--nodes=1_0", "--gpus-per-node=8", *JOB], "--nodes=1_0: expected 1 or more, a whole"),
        ([*NODES, *JOB, "--config.parallel.fsdp=7"],
         "= 7 devices: expected a divisor of the 16 devices"),
        ([*NODES, *JOB, "--config.phases[0].global_batch=24"],
         "config.phases[0].global_batch = 24: expected a multiple of the 16 devices"),
    ],
)  # fmt: skip
def test_bad_requests_end_with_one_line(
    dry: Callable[..., Shown], arguments: list[str], message: str
) -> None:
    seen = dry("slurm", "submit", "large", *arguments)
    assert (seen.status, seen.commands, seen.files) == (2, [], {})
    assert message in seen.error
    assert seen.error.count("\n") == 1


@pytest.mark.parametrize("replica", [1, 2])
def test_a_node_may_be_a_slice_or_not(dry: Callable[..., Shown], replica: int) -> None:
    more = [
        f"--config.parallel.replica={replica}",
        f"--config.parallel.data={16 // replica}",
        "--config.parallel.fsdp=1",
    ]
    seen = dry("slurm", "submit", "large", *NODES, *JOB, *more)
    assert (seen.status, seen.error) == (0, "")


@pytest.mark.parametrize("limit", ["90", "90:00", "1:30:00", "2-12", "2-12:30:00", "UNLIMITED"])
def test_every_form_of_the_time_limit_is_taken(dry: Callable[..., Shown], limit: str) -> None:
    script = dry("slurm", "submit", "large", *NODES, *JOB, f"--time={limit}").files["job.sbatch"]
    assert f"#SBATCH --time={limit}\n" in script


@pytest.mark.parametrize(
    "option",
    ["--partition=a", "--account=a", "--time=10", "--sbatch=--qos=a", "--venv=/a", "--env=A=1",
     "--workdir=/a/b", "--cache=/a", "--config.init_from=/a", "--config=a", "--max-restarts=1"],
)  # fmt: skip
def test_no_argument_brings_a_line_of_its_own(dry: Callable[..., Shown], option: str) -> None:
    for mark in ("\n", "\r", "\x1b[2J", "\x85", "\u2028", "\udcff"):
        seen = dry("slurm", "submit", "large", *NODES, *JOB, f"{option}{mark}#SBATCH --evil")
        assert (seen.status, seen.commands, seen.files) == (2, [], {})
        assert seen.error.startswith(f"slurm.py: '{option}\\")
        assert "expected printable characters only" in seen.error
        assert seen.error.count("\n") == len(seen.error.splitlines()) == 1


def test_a_value_in_a_word_of_its_own_is_named_by_its_option(dry: Callable[..., Shown]) -> None:
    seen = dry("slurm", "submit", "large", *NODES, *JOB, "--partition", "a\nb")
    assert seen.error.startswith("slurm.py: --partition 'a\\nb': expected printable")


def test_stopping_an_unknown_job_says_so(tmp_path: Path) -> None:
    stand_in(tmp_path, "squeue", "exit 0")
    done = subprocess.run(
        [sys.executable, LAUNCH / "slurm.py", "stop", "large"],
        cwd=ROOT, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no such job of yours" in done.stderr
