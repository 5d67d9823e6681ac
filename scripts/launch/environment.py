"""Environment variables of a run: the one place where the launchers keep them.

A name given with --env replaces what stands here. Options of the compiler for overlap are not here:
the program gives them to the compiler itself, from bert_lamb/parallel/overlap.py.
"""

import re
from collections.abc import Sequence

from running import LaunchError


def common(cache: str) -> dict[str, str]:
    """Returns the variables of every platform.

    Args:
        cache: folder of compiled programs that all hosts and all restarts share, "" for none.
    """
    variables = {
        # Lines reach the log when they are printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
    }
    if cache:
        # A restart reads the compiled step instead of compiling it for minutes.
        variables["JAX_COMPILATION_CACHE_DIR"] = cache
    return variables


def for_tpu(cache: str) -> dict[str, str]:
    """Returns the variables of a TPU run; `cache` as in `common`."""
    # Without this JAX goes on with the CPU where a TPU does not start, and looks alive.
    return common(cache) | {"JAX_PLATFORMS": "tpu,cpu"}


def for_gpu(cache: str) -> dict[str, str]:
    """Returns the variables of a GPU run; `cache` as in `common`."""
    return common(cache) | {
        "JAX_PLATFORMS": "cuda,cpu",
        # The default, 0.75, leaves a quarter of the memory unused.
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9",
        # Names the link or the host that fails; silent otherwise.
        "NCCL_DEBUG": "WARN",
    }


def with_extra(variables: dict[str, str], extra: Sequence[str]) -> dict[str, str]:
    """Adds NAME=VALUE pairs of the command line, which win; an empty value removes the name.

    Raises:
        LaunchError: if a pair has no = or no name that every shell takes.
    """
    merged = dict(variables)
    for pair in extra:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise LaunchError(
                f"--env {pair}: expected NAME=VALUE with a NAME of A-Z, a-z, 0-9 and _"
            )
        merged[name] = value
    return {name: value for name, value in merged.items() if value}


def default_cache(workdir: str) -> str:
    """Returns the cache that the runs beside `workdir` share: PARENT/compilation-cache.

    Raises:
        LaunchError: if `workdir` has no parent, so that the cache would lie inside the run.
    """
    parent = workdir.rstrip("/").rpartition("/")[0].rstrip("/")
    if not parent or parent.endswith(":"):
        raise LaunchError(
            f"--workdir={workdir}: no folder above it to keep compiled programs in; give "
            f"{workdir.rstrip('/')}/RUN, or --cache=DIR"
        )
    return f"{parent}/compilation-cache"
