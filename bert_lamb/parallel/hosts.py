"""The hosts of a job: what they tell each other before and between steps, and when one leaves.

Every host runs the same command. What they tell each other here goes through the coordination
service that JAX starts with them, not over the accelerators' links, and so works before anything
is compiled and while a step hangs.
"""

import itertools
import json
import os
import sys
import time
from typing import Any, NoReturn

import jax
import orbax.checkpoint as ocp

# Exit status of a run that may be restarted as it is (EX_TEMPFAIL of sysexits.h).
RESTART = 75
_LEAVE_SECONDS = 10.0
_PARTING_SECONDS = 1.0
_POLL_SECONDS = 2
_LEFT = "bert_lamb/left"
_ANSWER_SECONDS = 600
_rounds = itertools.count()


class HostsError(RuntimeError):
    """Hosts that cannot find each other, or one that has left the others.

    Attributes:
        status: the exit status that this calls for.
    """

    def __init__(self, message: str, status: int = RESTART) -> None:
        super().__init__(message)
        self.status = status


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
    return [_answer(client, f"{folder}/{host}", topic) for host in range(jax.process_count())]


def _answer(client: Any, key: str, topic: str) -> str:
    until = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < until:
        try:
            return client.blocking_key_value_get(key, 1000 * _POLL_SECONDS)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        if left := who_left(client):
            raise left
    raise HostsError(
        f"host {key.rpartition('/')[2]} says nothing about {topic} for {_ANSWER_SECONDS} s; see "
        "its log"
    )


def who_left(client: Any) -> HostsError | None:
    """Returns what another host said when it left before its work was done, if one has."""
    for key, text in client.key_value_dir_get(_LEFT):
        host, told = int(key.rpartition("/")[2]), json.loads(text)
        if host != jax.process_index():
            return HostsError(f"host {host} has left: {told['reason']}", told["status"])
    return None


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


def leave(status: int, reason: str) -> NoReturn:
    """Ends this process at once; an orderly exit would wait for hosts that may be lost.

    The others are told why. Host 0 runs the service through which they are, so it gives them some
    seconds to hear it, or to say their own reason, and to leave first: JAX aborts a process that
    finds the service gone, and its exit status would be lost.
    """
    client: Any = ocp.multihost.get_jax_distributed_client()
    sys.stdout.flush()
    sys.stderr.flush()
    told = json.dumps({"status": status, "reason": reason})
    try:
        client.key_value_set(f"{_LEFT}/{jax.process_index()}", told, allow_overwrite=True)
        until = time.monotonic() + _LEAVE_SECONDS
        if is_first():
            for host in range(1, jax.process_count()):
                remaining = max(1, int(1000 * (until - time.monotonic())))
                client.blocking_key_value_get(f"{_LEFT}/{host}", remaining)
            time.sleep(_PARTING_SECONDS)  # between a host's last word and its exit
    except jax.errors.JaxRuntimeError:
        pass  # a host that says nothing any more
    os._exit(status)


def name() -> str:
    """Returns what this host is called in messages."""
    return f"host {jax.process_index()} of {jax.process_count()}"
