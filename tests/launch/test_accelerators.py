"""The table of slices, and what is said about slices that do not exist."""

import math

import pytest
from accelerators import SLICES, check_slices, find_slice
from running import LaunchError


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "topology", "gke", "machine"),
    [
        ("v3-8", 4, 1, "2x2", "tpu-v3-device", "ct3-hightpu-4t"),
        ("v3-32", 16, 4, "4x4", "tpu-v3-slice", "ct3p-hightpu-4t"),
        ("v3-2048", 1024, 256, "32x32", "tpu-v3-slice", "ct3p-hightpu-4t"),
        ("v4-16", 8, 2, "2x2x2", "tpu-v4-podslice", "ct4p-hightpu-4t"),
        ("v5e-8", 8, 1, "2x4", "tpu-v5-lite-podslice", "ct5lp-hightpu-8t"),
        ("v5e-256", 256, 64, "16x16", "tpu-v5-lite-podslice", "ct5lp-hightpu-4t"),
        ("v5p-128", 64, 16, "4x4x4", "tpu-v5p-slice", "ct5p-hightpu-4t"),
        ("v6e-1", 1, 1, "1x1", "tpu-v6e-slice", "ct6e-standard-1t"),
        ("v6e-256", 256, 64, "16x16", "tpu-v6e-slice", "ct6e-standard-4t"),
        ("tpu7x-128", 64, 16, "4x4x4", "tpu7x", "tpu7x-standard-4t"),
    ],
)
def test_a_name_gives_the_published_shape(
    name: str, chips: int, hosts: int, topology: str, gke: str, machine: str
) -> None:
    found = find_slice(name)
    shape = (found.chips, found.hosts, found.topology, found.gke, found.machine)
    assert shape == (chips, hosts, topology, gke, machine)


@pytest.mark.parametrize(
    ("name", "devices"),
    [("v3-32", 32), ("v4-32", 16), ("v5e-16", 16), ("v5p-32", 16), ("v6e-8", 8), ("tpu7x-32", 32)],
)
def test_devices_are_counted_as_jax_counts_them(name: str, devices: int) -> None:
    assert find_slice(name).devices == devices


def test_every_topology_has_the_chips_that_its_hosts_hold() -> None:
    for name, found in SLICES.items():
        assert math.prod(map(int, found.topology.split("x"))) == found.chips, name
        assert found.hosts * found.chips_per_host == found.chips, name
        assert int(name.rpartition("-")[2]) == found.chips * found.generation.counts, name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("v4-17", "the nearest is v4-16"),
        ("v5e-200", "the nearest is v5litepod-256"),
        ("v4", "did you mean v4-"),
        ("a100-8", "expected one of v3-N"),
        ("", "expected one of v3-N"),
    ],
)
def test_an_unknown_type_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(LaunchError, match="unknown type") as caught:
        find_slice(name)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "count", "where", "message"),
    [
        ("v3-32", 2, "GKE", "v3 slices cannot be joined"),
        ("v4-8", 2, "GKE", "take a larger type"),
    ],
)
def test_slices_that_cannot_work_together_are_refused(
    name: str, count: int, where: str, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        check_slices(find_slice(name), count, where)


def test_slices_that_can_are_not() -> None:
    check_slices(find_slice("v3-32"), 1, "GKE")
    check_slices(find_slice("v4-16"), 2, "GKE")
    check_slices(find_slice("v4-8"), 2, "Cloud TPU VMs")
