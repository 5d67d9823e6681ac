"""Several hosts: real processes on this machine, which find each other and train together."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import pytest

from bert_lamb.config import ConfigError, ParallelConfig, PretrainConfig, from_dict
from bert_lamb.model import pretraining
from bert_lamb.parallel import hosts, joining
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.parallel.watchdog import describe_hosts
from bert_lamb.training import preflight
from bert_lamb.training.checkpoint import Checkpoints
from bert_lamb.training.start import lay_out, state_shapes
from bert_lamb.training.state import TrainState
from tests.conftest import CACHE
from tests.steps import assert_close

HOST_RUN = Path(__file__).parent / "host_run.py"
STALL_SECONDS = 20
STEPS = 8


@dataclass(frozen=True)
class Ended:
    """How one host of a job ended."""

    status: int
    errors: str
    output: str
    seconds: float


@dataclass(frozen=True)
class Jobs:
    """Starts jobs of several processes on one config file."""

    config: Path

    def run(
        self,
        workdir: Path,
        count: int,
        *,
        devices: int = 8,
        flags: Mapping[int, tuple[str, ...]] | None = None,
        signals: Mapping[int, tuple[str, int]] | None = None,
        after_first_exit: Callable[[list[subprocess.Popen]], None] | None = None,
    ) -> list[Ended]:
        """Runs one process per host over `devices` devices in all; waits for all of them."""
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices // count),
            # As in tests/quick.py: compiling is most of the time.
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(CACHE),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
        }
        seen = workdir.parent / f"{workdir.name}-seen"
        seen.mkdir(exist_ok=True)
        job = len({p.name.split("-")[0] for p in seen.iterdir()})
        processes = []
        for i in range(count):
            number, step = (signals or {}).get(i, ("none", 0))
            together = () if count == 1 else (
                f"--coordinator=localhost:{port}", f"--num-processes={count}", f"--process-id={i}",
            )  # fmt: skip
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(HOST_RUN), str(seen / f"{job}-{i}"), number, str(step),
                     "pretrain", f"--config={self.config}", f"--workdir={workdir}",
                     f"--config.parallel.stall_seconds={STALL_SECONDS}", *together,
                     *(flags or {}).get(i, ())],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                )
            )  # fmt: skip
        began = time.monotonic()
        if after_first_exit:
            while all(p.poll() is None for p in processes):
                time.sleep(0.2)
            after_first_exit(processes)
        ended = []
        for process in processes:
            output, errors = process.communicate(timeout=300)
            ended.append(Ended(process.returncode, errors, output, time.monotonic() - began))
        return ended


@pytest.fixture(scope="module")
def jobs(small: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    folder = tmp_path_factory.mktemp("hosts")
    # One phase without evaluation: every program less is one compilation less in every process.
    phase = small["phases"][0] | {"steps": STEPS, "heldout": ""}
    values = small | {
        "model": small["model"] | {"scan_layers": True},
        "phases": [phase],
        "checkpoint": {"every_steps": 2, "keep": 2},
    }
    config = folder / "config.py"
    config.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({values!r})\n"
    )
    return Jobs(config)


def _rows(workdir: Path, job: int) -> list[list[tuple[int, str]]]:
    """The rows of each batch that a job's hosts were fed, all hosts together."""
    files = sorted((workdir.parent / f"{workdir.name}-seen").glob(f"{job}-*"))
    batches = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    return [
        sorted(pair for part in parts for pair in zip(part["rows"], part["digests"], strict=True))
        for parts in zip(*batches, strict=False)
    ]


def _final(workdir: Path) -> TrainState:
    config = from_dict(PretrainConfig, preflight.read_config(workdir))
    layout = lay_out(pretraining(config.model), make_mesh(ParallelConfig(), jax.devices()[:1]))
    with Checkpoints(workdir, read_only=True) as checkpoints:
        restored = checkpoints.restore_newest(
            state_shapes(config, pretraining(config.model), layout)
        )
    assert restored is not None
    return restored[0]


def _losses(workdir: Path) -> dict[int, float]:
    records = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return {r["step"]: r["loss"] for r in records if r["kind"] == "train"}


@pytest.fixture(scope="module")
def straight(jobs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight steps of one process with eight devices, dropout on."""
    workdir = tmp_path_factory.mktemp("straight") / "run"
    (ended,) = jobs.run(workdir, 1)
    assert ended.status == 0, ended.errors
    return workdir


def test_p32_p33_two_hosts_with_four_devices_equal_one_with_eight(jobs, straight, tmp_path):
    workdir = tmp_path / "run"
    ended = jobs.run(workdir, 2)
    assert [e.status for e in ended] == [0, 0], ended[0].errors + ended[1].errors
    assert_close(_final(workdir).params, _final(straight).params, 1e-6)
    ours, theirs = _losses(workdir), _losses(straight)
    assert list(ours) == list(theirs) == list(range(1, STEPS + 1))
    assert max(abs(ours[step] - theirs[step]) for step in ours) < 1e-5

    files = [tmp_path / "run-seen" / f"0-{i}" for i in range(2)]
    shares = [json.loads(file.read_text().splitlines()[0])["rows"] for file in files]
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7]]  # each host reads its half only
    assert _rows(workdir, 0) == _rows(straight, 0)
    # Host 0 alone writes and shows.
    assert f"step {STEPS}/{STEPS}" in ended[0].errors
    assert "step" not in ended[1].errors + ended[1].output


@pytest.mark.slow
def test_p37_a_killed_host_ends_the_job_and_the_slice_that_is_left_goes_on_with_the_examples_due(
    jobs, straight, tmp_path
):
    workdir = tmp_path / "run"
    two_slices = dict.fromkeys(range(4), ("--config.parallel.replica=2",))
    ended = jobs.run(workdir, 4, flags=two_slices, signals={2: ("SIGKILL", 5)})
    assert ended[2].status == -signal.SIGKILL
    for i in (0, 1, 3):
        # Its own exit, or that of JAX's service, which aborts the process.
        assert ended[i].status in (hosts.RESTART, -signal.SIGABRT), ended[i].errors
        assert ended[i].seconds - ended[2].seconds < STALL_SECONDS + 15
    saved = max(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())
    assert saved in (2, 4)

    # One slice is left: half of the hosts and devices.
    again = jobs.run(workdir, 2, devices=4)
    assert [e.status for e in again] == [0, 0], again[0].errors + again[1].errors
    assert f"resuming at step {saved} of {STEPS}" in again[0].errors
    due = _rows(straight, 0)
    assert _rows(workdir, 0)[:saved] == due[:saved]
    assert _rows(workdir, 1) == due[saved:]
    assert_close(_final(workdir).params, _final(straight).params, 1e-6)
    assert list(_losses(workdir)) == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_sigterm_on_one_host_makes_all_save_the_same_step_and_one_host_resumes(
    jobs, straight, tmp_path
):
    workdir = tmp_path / "run"
    ended = jobs.run(workdir, 2, signals={1: ("SIGTERM", 3)})
    assert [e.status for e in ended] == [143, 143], ended[0].errors + ended[1].errors
    (step,) = re.findall(r"stopped by signal 15 after step (\d+), which is saved", ended[0].output)
    assert 3 <= int(step) < STEPS
    assert (workdir / "checkpoints" / step).is_dir()
    (again,) = jobs.run(workdir, 1)
    assert again.status == 0, again.errors
    assert f"resuming at step {step} of {STEPS}" in again.errors
    assert _rows(workdir, 1) == _rows(straight, 0)[int(step) :]
    assert_close(_final(workdir).params, _final(straight).params, 1e-6)


@pytest.mark.slow
def test_p33_a_host_that_stands_still_is_named_and_the_job_ends(jobs, tmp_path):
    def kill(processes: list[subprocess.Popen]) -> None:
        processes[1].kill()  # it is stopped, and would never end

    ended = jobs.run(
        tmp_path / "run", 2, signals={1: ("SIGSTOP", 3)}, after_first_exit=kill,
    )  # fmt: skip
    assert ended[0].status == hosts.RESTART, ended[0].errors
    message = ended[0].errors[ended[0].errors.index("bert-lamb: host 0") :]
    assert f"for more than {STALL_SECONDS} s (by config.parallel.stall_seconds" in message
    assert re.search(r"host 0: \w+ after step \d+, heard of \d s ago", message)
    assert re.search(r"host 1: \w+ after step [23], heard of [12]\d s ago", message)


def test_hosts_that_do_not_run_the_same_refuse_before_the_first_step(jobs, tmp_path):
    ended = jobs.run(tmp_path / "run", 2, flags={1: ("--config.optimizer.weight_decay=0.5",)})
    for host in ended:
        assert host.status == 1
        assert "host 1 does not run what host 0 runs" in host.errors
        assert "config.optimizer.weight_decay: 0.01 -> 0.5" in host.errors
        assert "Traceback" not in host.errors
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_hosts_with_copies_of_the_folder_instead_of_one_refuse(jobs, straight, tmp_path):
    """A run copied to the disk of each host: every file is there, but host 0's writes are not."""
    folders = [tmp_path / "run", tmp_path / "copy"]
    for folder in folders:
        shutil.copytree(straight, folder)
    ended = jobs.run(tmp_path / "run", 2, flags={1: (f"--workdir={folders[1]}",)})
    for host in ended:
        assert host.status == 1, host.errors
        assert "what host 0 writes there does not arrive on host 1" in host.errors
        assert "Traceback" not in host.errors


def test_a_fault_on_one_host_is_told_to_the_others(jobs, tmp_path):
    ended = jobs.run(tmp_path / "run", 2, flags={1: ("--config.phases[0].records=/nowhere",)})
    assert [host.status for host in ended] == [1, 1], ended[0].errors
    assert "/nowhere" in ended[1].errors
    assert "bert-lamb: host 1 has left: " in ended[0].errors
    assert "/nowhere" in ended[0].errors
    assert ended[0].seconds < 60


# What needs no processes.


@pytest.mark.parametrize(
    ("environment", "sign"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "4"}, None),  # an allocation, but no srun
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, "SLURM_NTASKS = 4"),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE = 2"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_HOSTNAMES = a,b"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({"MEGASCALE_NUM_SLICES": "2"}, "MEGASCALE_NUM_SLICES = 2"),
    ],
)
def test_signs_of_several_hosts(environment, sign):
    assert joining.sign_of_several_hosts(environment) == sign


@pytest.mark.parametrize(
    ("given", "environment", "message"),
    [
        (("a:1", None, 0), {}, "coordinator = a:1, num-processes = None, process-id = 0"),
        ((None, 2, None), {}, "expected all three"),
        ((None, None, None), {"JAX_COORDINATOR_ADDRESS": "a:1"}, "expected all three"),
        (("a:1", 2, None), {"JAX_PROCESS_ID": "x"}, "JAX_PROCESS_ID = 'x': expected a number"),
        (("a:1", None, 0), {"JAX_NUM_PROCESSES": "²"}, "JAX_NUM_PROCESSES = '²': expected"),
        (("a", 2, 0), {}, "coordinator = 'a': expected HOST:PORT"),
        (("a:99999", 2, 0), {}, "coordinator = 'a:99999': expected HOST:PORT with a port from 1"),
        (("a:1", 0, 0), {}, "num-processes = 0: expected at least 1"),
        (("a:1", 2, 2), {}, "process-id = 2: expected 0 to 1"),
        (("a:1", 2, -1), {}, "process-id = -1: expected 0 to 1"),
    ],
)
def test_a_job_that_is_half_described_is_refused(monkeypatch, given, environment, message):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=re.escape(message)):
        joining.join(*given)


def test_a_port_in_use_is_refused():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is not free here"):
            joining.join(f"localhost:{port}", 2, 0)


def test_a_coordinator_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(joining, "START_SECONDS", 2)
    with pytest.raises(hosts.HostsError, match="process 0 does not answer there for 2 s") as error:
        joining.join("localhost:1", 2, 1)
    assert error.value.status == hosts.RESTART


def test_alone_nothing_is_joined_and_everyone_agrees():
    joining.join()
    assert not jax.distributed.is_initialized()
    assert hosts.gather_texts("x", "mine") == ["mine"]
    assert hosts.everywhere("x", True)
    assert not hosts.everywhere("x", False)
    assert hosts.is_first()
    assert not hosts.several()


def test_the_watchdog_says_where_hosts_were_last_heard_of():
    told = {"bert_lamb/alive/0": json.dumps({"doing": "training", "step": 7, "time": 100.0})}
    assert describe_hosts(told, 130.0) == ["host 0: training after step 7, heard of 30 s ago"]
    assert describe_hosts({}, 0.0) == ["host 0: has not written anything"]


def test_a_run_alone_that_stands_still_ends_too(tmp_path):
    program = (
        "import time\nfrom bert_lamb.parallel.watchdog import Watchdog\n"
        "with Watchdog(1) as watchdog:\n"
        "    watchdog.at('training', 3)\n    time.sleep(60)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert ended.returncode == hosts.RESTART
    assert "host 0 has been training after step 3 for more than 1 s" in ended.stderr
