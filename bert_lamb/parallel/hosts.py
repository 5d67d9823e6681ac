"""The hosts of a job: finding each other, and comparing notes before and between steps.

Every host runs the same command. What they tell each other here goes through the coordination
service that JAX starts with them, not over the accelerators' links, and so works before anything
is compiled and while a step hangs.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import jax
import orbax.checkpoint as ocp

from bert_lamb.config import ConfigError

# A host of which the coordination service hears nothing for so long is taken for dead by JAX.
HEARTBEAT_SECONDS = 120
# Exit status of a run that may be restarted as it is (EX_TEMPFAIL of sysexits.h).
RESTART = 75
_START_SECONDS = 300
_LEAVE_SECONDS = 5.0
_ANSWER_SECONDS = 600
_rounds = itertools.count()


class HostsError(RuntimeError):
    """Hosts that cannot find each other, do not run the same job, or are lost."""


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
        ConfigError: if some of the three are given and some not, or one is no number.
        HostsError: if the platform has several hosts and they do not come together.
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
    try:
        jax.distributed.initialize(
            *given,
            initialization_timeout=_START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        raise HostsError(
            f"the hosts of this job do not come together ({sign or 'as given'}): "
            f"{str(error).strip().splitlines()[0]}; start the same command on every host within "
            f"{_START_SECONDS} s, or give --coordinator, --num-processes and --process-id"
        ) from error


def gather_texts(topic: str, text: str) -> list[str]:
    """Returns what every host says about `topic`, in the order of the hosts.

    All hosts must call it, in the same order of calls.

    Raises:
        HostsError: if a host does not answer.
    """
    if jax.process_count() == 1:
        return [text]
    client: Any = ocp.multihost.get_jax_distributed_client()
    folder = f"bert_lamb/{topic}/{next(_rounds)}"
    client.key_value_set(f"{folder}/{jax.process_index()}", text)
    texts = []
    for host in range(jax.process_count()):
        try:
            texts.append(client.blocking_key_value_get(f"{folder}/{host}", 1000 * _ANSWER_SECONDS))
        except jax.errors.JaxRuntimeError as error:
            raise HostsError(
                f"host {host} says nothing about {topic} for {_ANSWER_SECONDS} s; see its log"
            ) from error
    return texts


def everywhere(topic: str, fine: bool) -> bool:
    """Returns whether all hosts find `topic` fine; they call it together."""
    return all(json.loads(text) for text in gather_texts(topic, json.dumps(fine)))


def wait_for_all(topic: str) -> None:
    """Returns when all hosts have come here."""
    gather_texts(topic, "")


def is_first() -> bool:
    """Says whether this is the host that writes what only one may write."""
    return jax.process_index() == 0


def several() -> bool:
    """Says whether this process is one of several; asking does not start JAX's backends."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def leave(status: int) -> NoReturn:
    """Ends this process at once; an orderly exit would wait for hosts that may be lost.

    Host 0 runs the coordination service, without which the others are aborted, so it gives them
    some seconds to say their own reason and leave first.
    """
    client: Any = ocp.multihost.get_jax_distributed_client()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if not is_first():
            client.key_value_set(f"bert_lamb/left/{jax.process_index()}", str(status))
        until = time.monotonic() + _LEAVE_SECONDS
        for host in range(1, jax.process_count()) if is_first() else ():
            left = max(0, int(1000 * (until - time.monotonic())))
            client.blocking_key_value_get(f"bert_lamb/left/{host}", left)
    except jax.errors.JaxRuntimeError:
        pass  # a host that says nothing any more
    os._exit(status)


def name() -> str:
    """Returns what this host is called in messages."""
    return f"host {jax.process_index()} of {jax.process_count()}"


def _number(name: str, value: int | None) -> int | None:
    text = os.environ.get(name)
    if value is not None or text is None:
        return value
    if not text.isdigit():
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
