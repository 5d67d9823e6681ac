"""Devices of absent TPU topologies, and errors that say which names work."""

import os
import subprocess
import sys

import pytest

from bert_lamb.planning.topology import topology_devices
from tests.planning.programs import needs_libtpu


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "devices", "kind", "corner"),
    [
        ("v3:4x4", 32, "TPU v3", [3, 3, 0]),  # two cores to a chip, each a device
        ("v3:32x32", 2048, "TPU v3", [31, 31, 0]),
        ("v4:2x2x2", 8, "TPU v4", [1, 1, 1]),  # two cores to a chip, one device
        ("v5e:4x4", 16, "TPU v5 lite", [3, 3, 0]),
        ("v5e:1x1", 1, "TPU v5 lite", [0, 0, 0]),
        ("v5p:2x2x4", 16, "TPU v5", [1, 1, 3]),
        ("V6E:8x8", 64, "TPU v6 lite", [7, 7, 0]),
    ],
)
def test_devices_are_those_of_such_a_machine(name, devices, kind, corner):
    found = topology_devices(name)
    assert len(found) == devices
    assert {device.device_kind for device in found} == {kind}
    assert [device.id for device in found] == list(range(devices))
    assert max(list(device.coords) for device in found) == corner


@needs_libtpu
@pytest.mark.parametrize("name", ["v5e:3x3", "v3:1x1", "v3:0x2"])
def test_a_shape_that_no_machine_has_is_refused_with_shapes_that_exist(name):
    with pytest.raises(ValueError, match=f"topology {name}: .*multiples of .* v5e:4x4") as error:
        topology_devices(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v3-32", "expected GENERATION:SHAPE .* such as v3:32x32"),
        ("", "expected GENERATION:SHAPE"),
        ("v3:4x", "expected GENERATION:SHAPE"),
        ("v9:2x2", "unknown generation 'v9'; expected one of v2, v3, v4, v5e"),
        ("v5e:٤x4", "expected GENERATION:SHAPE"),
        ("v5e:4x4\n\n:", "expected GENERATION:SHAPE"),
        ("v5e:" + "9" * 5000 + "x4", "expected GENERATION:SHAPE"),
        ("v4:2x2", "v4 chips are wired in 3 dimensions, got 2; .* as in v4:4x4x4"),
        ("v5e:2x2x2", "v5e chips are wired in 2 dimensions, got 3; .* as in v5e:4x4"),
    ],
)
def test_a_name_that_is_none_is_refused_with_names_that_are(name, message):
    with pytest.raises(ValueError, match=message) as error:
        topology_devices(name)
    assert str(error.value).startswith(f"topology {name!r}: ")


@pytest.mark.parametrize("name", [None, 4, ("v5e", 4, 4), b"v5e:4x4"])
def test_what_is_no_text_is_refused_like_a_wrong_name(name):
    with pytest.raises(ValueError, match="expected GENERATION:SHAPE"):
        topology_devices(name)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("v2:16x32", "v2 has 256 chips, 16 a side"),
        ("v3:32x64", "v3 has 1024 chips, 32 a side"),
        ("v3:4096x4096", "v3 has 1024 chips"),
        ("v4:16x16x20", "v4 has 4096 chips;"),
        ("v5e:1000x1000", "v5e has 256 chips, 16 a side"),
        ("v5e:8x32", "v5e has 256 chips, 16 a side"),
        ("v5p:16x24x24", "v5p has 8960 chips;"),
        ("v6e:16x20", "v6e has 256 chips"),
        ("tpu7x:16x24x28", "tpu7x has 9216 chips;"),
        ("v4:0x99999x1", "v4 has 4096 chips"),
    ],
)
def test_a_shape_larger_than_the_largest_slice_is_refused(name, most):
    with pytest.raises(ValueError, match=f"topology '{name}': the largest slice of {most}"):
        topology_devices(name)


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "devices"),
    [("v2:16x16", 512), ("v4:16x16x16", 4096), ("v5e:16x16", 256), ("v5p:16x20x28", 8960)],
)
def test_the_largest_slice_is_there(name, devices):
    assert len(topology_devices(name)) == devices


def test_without_the_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)  # what Python takes for not installed
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(ModuleNotFoundError) as error:
        topology_devices("v5e:4x4")
    assert str(error.value) == (
        "topology v5e:4x4: compiling for TPU needs the package libtpu, which is not installed; "
        "run pip install 'bert-lamb[tpu]'"
    )


CACHED = """
import jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", {folder!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
from bert_lamb.planning.topology import compile_absent, topology_devices
one = jax.sharding.SingleDeviceSharding(topology_devices("v5e:1x1")[0])
shape = jax.ShapeDtypeStruct((8, 128), jnp.float32, sharding=one)
def lower():
    jax.clear_caches()
    return jax.jit(jnp.sin).lower(shape)
def entries():
    from pathlib import Path
    return len(list(Path({folder!r}).glob("jit_sin-*-cache")))
compile_absent(lower())
assert entries() == 0
lower().compile()
assert entries() == 1, "JAX no longer keeps what it cannot load: drop compile_absent"
assert "HloModule" in compile_absent(lower()).as_text()
assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.0
"""


@needs_libtpu
def test_what_is_compiled_for_absent_devices_passes_the_cache_by(tmp_path):
    command = [sys.executable, "-W", "error", "-c", CACHED.format(folder=str(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


COMPILE = """
import os
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from bert_lamb.planning.topology import topology_devices
imported = dict(os.environ)
mesh = Mesh(np.array(topology_devices('v5e:2x2')), ('data',))
assert dict(os.environ) == imported, 'the environment is not as it was'
print('loaded', flush=True)
input()
sum_of = jax.shard_map(lambda x: jax.lax.psum(x, 'data'), mesh=mesh, in_specs=P('data'),
                       out_specs=P())
text = jax.jit(sum_of).lower(jax.ShapeDtypeStruct((8, 8), 'float32')).compile().as_text()
print(text.count(' all-reduce('), jax.devices()[0].platform)
"""


@needs_libtpu
def test_two_processes_compile_at_once_and_print_nothing():
    command = [sys.executable, "-W", "error", "-c", COMPILE]
    environment = {k: v for k, v in os.environ.items() if k != "ALLOW_MULTIPLE_LIBTPU_LOAD"}
    processes = [
        subprocess.Popen(
            command, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        assert [process.stdout.readline() for process in processes] == ["loaded\n"] * 2
        # Both hold the library now.
        for process in processes:
            out, err = process.communicate("\n", timeout=300)
            assert (process.returncode, out, err) == (0, "1 cpu\n", "")
    finally:
        for process in processes:
            process.kill()
            process.wait()
