"""How the hosts of a job find each other."""

import logging
import os
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import jax

from bert_lamb.config import ConfigError
from bert_lamb.parallel.hosts import HostsError

log = logging.getLogger(__name__)
# A host of which the coordination service hears nothing for so long is taken for dead by JAX.
HEARTBEAT_SECONDS = 120
START_SECONDS = 300


def join(
    coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> None:
    """Connects this process with the other hosts of its job, if there are any.

    On Cloud TPU virtual machines, in TPU pods of GKE, and under Slurm or Open MPI the platform
    tells JAX who they are; elsewhere the three arguments do, or the environment variables
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID. Call it before anything else
    uses JAX.

    Args:
        coordinator: host:port of process 0, a free port there.
        num_processes: of the job.
        process_id: of this one, from 0.

    Raises:
        ConfigError: if some of the three are given and some not, or one makes no sense.
        HostsError: if the hosts do not come together.
    """
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    num_processes = _number("JAX_NUM_PROCESSES", num_processes)
    process_id = _number("JAX_PROCESS_ID", process_id)
    given = (coordinator, num_processes, process_id)
    sign = sign_of_several_hosts(os.environ)
    if given == (None, None, None) and sign is None:
        return
    if None in given and sign is None:
        raise ConfigError(
            f"coordinator = {coordinator}, num-processes = {num_processes}, process-id = "
            f"{process_id}: expected all three, or none where the platform knows them"
        )
    if coordinator is not None and num_processes is not None and process_id is not None:
        _check(coordinator, num_processes, process_id)
        _reach(coordinator, process_id)
        sign = f"{num_processes} processes at {coordinator}"
    log.info("waiting up to %d s for all hosts of this job (%s)", START_SECONDS, sign)
    try:
        jax.distributed.initialize(
            *given,
            initialization_timeout=START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        raise HostsError(
            f"the hosts of this job do not come together ({sign}): "
            f"{str(error).strip().splitlines()[0].rstrip('.')}; start the same command on every "
            f"host within {START_SECONDS} s, or give --coordinator, --num-processes and "
            "--process-id"
        ) from error


def _check(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ConfigError(
            f"coordinator = {coordinator!r}: expected HOST:PORT with a port from 1 to 65535"
        )
    if num_processes < 1:
        raise ConfigError(f"num-processes = {num_processes}: expected at least 1")
    if not 0 <= process_id < num_processes:
        raise ConfigError(
            f"process-id = {process_id}: expected 0 to {num_processes - 1}, another for each of "
            f"the {num_processes} processes"
        )


def _reach(coordinator: str, process_id: int) -> None:
    """Waits until process 0 listens. JAX itself would wait in silence, and then abort."""
    host, _, port = coordinator.rpartition(":")
    if process_id == 0:
        try:
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise ConfigError(
                f"coordinator = {coordinator!r}: port {port} is not free here ({error.strerror}); "
                "give another one to all processes"
            ) from error
        return
    until, fault = time.monotonic() + START_SECONDS, ""
    log.info("waiting up to %d s for process 0 at %s", START_SECONDS, coordinator)
    while time.monotonic() < until:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            fault = error.strerror or str(error)
            time.sleep(1)
    raise HostsError(
        f"coordinator = {coordinator!r}: process 0 does not answer there for {START_SECONDS} s "
        f"({fault}); start it with the same address, and let traffic to that port through"
    )


def _number(name: str, value: int | None) -> int | None:
    text = os.environ.get(name)
    if value is not None or text is None:
        return value
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name} = {text!r}: expected a number")
    return int(text)


def sign_of_several_hosts(environment: Mapping[str, str]) -> str | None:
    """Says by what this process seems to be one of several; None if by nothing."""
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "MEGASCALE_NUM_SLICES"):
        if environment.get(name, "1") not in ("", "0", "1") and _launched(name, environment):
            return f"{name} = {environment[name]}"
    for name in ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"):
        if "," in environment.get(name, ""):
            return f"{name} = {environment[name]}"
    devices = ("/dev/accel0", "/dev/vfio/0")
    if find_spec("libtpu") and any(Path(device).exists() for device in devices):
        # A Cloud TPU virtual machine: only its metadata server knows of the others.
        return None if "TPU_SKIP_MDS_QUERY" in environment else "a TPU is attached"
    return None


def _launched(name: str, environment: Mapping[str, str]) -> bool:
    """Inside a Slurm allocation, but not started by srun, a process is alone."""
    return name != "SLURM_NTASKS" or "SLURM_PROCID" in environment
