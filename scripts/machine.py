"""What a measurement ran on, for the scripts whose results are recorded; whole on Linux only."""

import os
import platform
from pathlib import Path


def describe() -> dict[str, str | int | None]:
    """Returns the CPU's name, the number of cores and the version of Python."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def peak_bytes() -> int:
    """Returns the largest resident memory that this process has had.

    VmHWM and not what getrusage gives, which includes the peak of the process it was started
    from.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
