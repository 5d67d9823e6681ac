"""Devices of TPU machines that are not here, to compile programs for.

The TPU compiler is a library (libtpu) that runs on any Linux machine. It hands out devices of a
topology it is told the name of; a mesh of them can be lowered and compiled for, and nothing else.

    >>> devices = topology_devices("v5e:4x4")
    >>> mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    >>> compiled = compile_absent(jax.jit(step).lower(*shapes_with_shardings_on_mesh))
"""

import contextlib
import importlib.util
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping

import jax
from jax.experimental import topologies

# Generations by name, with the number of sides of their torus and the chips of their largest slice
# (Google's pages on each generation).
_TORUS = {
    "v2": (2, 256), "v3": (2, 1024), "v4": (3, 4096), "v5e": (2, 256), "v5p": (3, 8960),
    "v6e": (2, 256), "tpu7x": (3, 9216),
}  # fmt: skip
_SINGLE_CHIPS = ("v5e", "v6e")  # rented one by one; elsewhere a host with 2x2 chips is the least
_FORMS = "v3:32x32, v4:2x2x2, v5e:4x4, v5p:4x4x8 or v6e:16x16"
_NAME = re.compile(r"([a-z0-9]+):([0-9]{1,9}(?:x[0-9]{1,9})*)")

# Without these the library asks for the identity of this machine, writes logs into /tmp, and
# refuses to load twice: two programs cannot share chips, but two compilers can share a machine.
_NO_CHIPS = {
    "TPU_ACCELERATOR_TYPE": "v3-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
}
_SHARED = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


def topology_devices(name: str) -> list[jax.Device]:
    """Returns the devices of a TPU topology, none of which need be here.

    A device is what JAX calls one on such a machine: a core on v2, v3 and tpu7x (two to a chip),
    a chip on the others. They come in the order of `jax.devices()` there, which is that of their
    ids and of hosts; `coords` is a chip's place in the torus.

    The present backend is neither started nor changed. Lowering for the devices starts it, so a
    machine without TPU that only compiles does well to set `JAX_PLATFORMS=cpu`.

    Args:
        name: generation and chips along each side of the torus, such as "v3:32x32", "v5e:4x4"
            or "v4:2x2x2". "v5e:1x1" and "v6e:1x1" are one chip.

    Raises:
        ValueError: if there is no such topology.
        ModuleNotFoundError: if the TPU compiler is not installed.
    """
    generation, sides = _parse(name)
    if importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ:
        raise ModuleNotFoundError(
            f"topology {name}: compiling for TPU needs the package libtpu, which is not installed; "
            "run pip install 'bert-lamb[tpu]'"
        )
    options: dict[str, object] = {}
    if generation == "v4":
        options["chip_config_name"] = "megacore"  # as in production: one device for both cores
    if generation in _SINGLE_CHIPS and set(sides) == {1}:
        options["chips_per_host_bounds"] = [1, 1, 1]
    try:
        with _environment_for_loading():
            topology = topologies.get_topology_desc(
                platform="tpu", topology_name=f"{generation}:{'x'.join(map(str, sides))}", **options
            )
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"topology {name}: the TPU compiler does not know this shape ({reason}); expected the "
            f"first two sides to be multiples of the 2x2 chips of a host, as in {_FORMS}"
        ) from error
    return sorted(topology.devices, key=lambda device: device.id)


def generation_of(name: str) -> str:
    """Returns the generation of a topology, its name checked as far as that needs no compiler.

    Raises:
        ValueError: if there is no such generation, or none of its slices has such a shape.
    """
    return _parse(name)[0]


def compile_absent(
    lowered: jax.stages.Lowered, options: Mapping[str, str] | None = None
) -> jax.stages.Compiled:
    """Compiles what was lowered for absent devices, past JAX's persistent compilation cache.

    The cache would take the program in, but only a machine with such devices can get it out: every
    later compilation of the same program would warn.

    Args:
        lowered: what `jax.jit(...).lower` returns.
        options: flags of the compiler by name, as `jax.stages.Lowered.compile` takes them.
    """
    setting = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, setting)
    jax.config.update(setting, math.inf)
    try:
        with warnings.catch_warnings():
            # Of programs that others have put there: they are compiled again.
            warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
            return lowered.compile(compiler_options=dict(options) if options else None)
    finally:
        jax.config.update(setting, before)


def _parse(name: str) -> tuple[str, tuple[int, ...]]:
    """Splits a name into (generation, sides), checked as far as it can be without the library."""
    found = _NAME.fullmatch(name.strip().lower()) if isinstance(name, str) else None
    if not found:
        raise ValueError(
            f"topology {name!r}: expected GENERATION:SHAPE with the number of chips along each "
            f"side, such as {_FORMS}"
        )
    generation, sides = found[1], tuple(map(int, found[2].split("x")))
    if generation not in _TORUS:
        raise ValueError(
            f"topology {name!r}: unknown generation {generation!r}; expected one of "
            f"{', '.join(_TORUS)}, as in {_FORMS}"
        )
    expected, most = _TORUS[generation]
    if len(sides) != expected:
        example = "x".join(["4"] * expected)
        raise ValueError(
            f"topology {name!r}: {generation} chips are wired in {expected} dimensions, got "
            f"{len(sides)}; give the number of chips along each, as in {generation}:{example}"
        )
    # The largest plane is a square; no shape of as many chips is longer.
    longest = math.isqrt(most) if expected == 2 else most
    if math.prod(sides) > most or max(sides) > longest:
        square = f", {longest} a side" if expected == 2 else ""
        raise ValueError(
            f"topology {name!r}: the largest slice of {generation} has {most} chips{square}; give "
            f"a smaller shape, as in {_FORMS}"
        )
    return generation, sides


@contextlib.contextmanager
def _environment_for_loading() -> Iterator[None]:
    """Sets, where the user has not, what libtpu reads from the environment while it loads."""
    # JAX sets this variable while it is imported on a machine without TPU chips. Where there are
    # chips, what describes them stays untouched.
    absent = "TPU_SKIP_MDS_QUERY" in os.environ
    wanted = _SHARED | (_NO_CHIPS if absent else {})
    added = {key: value for key, value in wanted.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)
