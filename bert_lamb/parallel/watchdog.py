"""Ends a run that gets no further, and says which host waits where.

A collective waits for all hosts, so when one is lost or stuck the others would wait for ever.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp

from bert_lamb.parallel.hosts import RESTART, who_left

_FOLDER = "bert_lamb/alive"
# Starting, compiling and evaluating may take so many times as long as a step may.
_PATIENCE = 10


class Watchdog:
    """A thread that looks whether the run still moves. Use as a context manager.

    Every host writes where it stands into the coordination service, several times within the
    limit. A host that has not moved for the limit prints what all hosts last wrote and exits with
    the status `RESTART`; nothing is saved then, since saving needs all hosts. When another host has
    left before its work was done, it says so and leaves too.
    """

    def __init__(self, limit_seconds: float) -> None:
        """Watches with a limit; 0 watches nothing."""
        self._limit = limit_seconds
        self._place = ("starting", 0, time.monotonic(), _PATIENCE * limit_seconds)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        several = jax.process_count() > 1
        self._client: Any = ocp.multihost.get_jax_distributed_client() if several else None

    def __enter__(self) -> "Watchdog":
        if self._limit:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._limit:
            self._thread.join()

    def at(self, doing: str, step: int, *, patient: bool = False) -> None:
        """Notes that the run moves.

        Args:
            doing: what it does now, for the message.
            step: the number of steps before it.
            patient: it takes as long as a compilation here, or on the host that is waited for.
        """
        limit = self._limit * (_PATIENCE if patient else 1)
        self._place = (doing, step, time.monotonic(), limit)

    def _watch(self) -> None:
        while not self._stop.wait(min(self._limit / 5, 10.0)):
            doing, step, since, limit = self._place
            self._tell(doing, step)
            if self._client is not None and (left := who_left(self._client)):
                print(f"bert-lamb: {left}", file=sys.stderr, flush=True)
                os._exit(left.status)
            if time.monotonic() - since > limit:
                self._leave(doing, step, limit)

    def _tell(self, doing: str, step: int) -> None:
        if self._client is None:
            return
        text = json.dumps({"doing": doing, "step": step, "time": time.time()})
        self._client.key_value_set(f"{_FOLDER}/{jax.process_index()}", text, allow_overwrite=True)

    def _leave(self, doing: str, step: int, limit: float) -> None:
        lines = [
            f"host {jax.process_index()} has been {doing} after step {step} for more than "
            f"{limit:g} s (by config.parallel.stall_seconds = {self._limit:g}) and gives up, so "
            "that the job can be restarted; it resumes from the newest checkpoint"
        ]
        if self._client is not None:
            lines += describe_hosts(dict(self._client.key_value_dir_get(_FOLDER)), time.time())
        print("bert-lamb: " + "\n  ".join(lines), file=sys.stderr, flush=True)
        # Not sys.exit: the main thread hangs in a call that no exception reaches.
        os._exit(RESTART)


def describe_hosts(told: Mapping[str, str], now: float) -> list[str]:
    """Says where each host stood when it last wrote.

    Args:
        told: from keys that end in the host's number to what it wrote.
        now: seconds since the epoch.
    """
    places = {int(key.rpartition("/")[2]): json.loads(text) for key, text in told.items()}
    lines = []
    for host in range(jax.process_count()):
        place = places.get(host)
        if place is None:
            lines.append(f"host {host}: has not written anything")
        else:
            lines.append(
                f"host {host}: {place['doing']} after step {place['step']}, "
                f"heard of {now - place['time']:.0f} s ago"
            )
    return lines
