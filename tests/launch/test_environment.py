"""Variables of a run, and those that the command line replaces."""

from pathlib import Path

import pytest
from environment import default_cache, for_gpu, for_tpu, with_extra
from running import LaunchError


def test_every_platform_gets_what_it_needs() -> None:
    assert for_tpu("gs://b/cache")["JAX_COMPILATION_CACHE_DIR"] == "gs://b/cache"
    assert "JAX_COMPILATION_CACHE_DIR" not in for_tpu("")
    assert for_tpu("")["JAX_PLATFORMS"] == "tpu,cpu"
    assert for_gpu("")["JAX_PLATFORMS"] == "cuda,cpu"


def test_the_command_line_replaces_and_removes_variables() -> None:
    merged = with_extra(for_gpu(""), ["JAX_PLATFORMS=", "NCCL_DEBUG=INFO", "A=x=y z"])
    assert "JAX_PLATFORMS" not in merged
    assert (merged["NCCL_DEBUG"], merged["A"]) == ("INFO", "x=y z")


@pytest.mark.parametrize("pair", ["A", "=x", "A B=x", "é=1", "1A=x", "A\n=x"])
def test_a_variable_without_name_or_value_is_refused(pair: str) -> None:
    with pytest.raises(LaunchError, match="expected NAME=VALUE"):
        with_extra({}, [pair])


@pytest.mark.parametrize(
    ("workdir", "cache"),
    [
        ("gs://bucket/runs/large", "gs://bucket/runs/compilation-cache"),
        ("gs://bucket/large/", "gs://bucket/compilation-cache"),
        ("/shared/runs/large", "/shared/runs/compilation-cache"),
    ],
)
def test_runs_beside_each_other_share_compiled_programs(workdir: str, cache: str) -> None:
    assert default_cache(workdir) == cache


@pytest.mark.parametrize("workdir", ["/w", "/w/", "//w", "gs://bucket", "w"])
def test_a_workdir_without_a_parent_gets_no_cache_inside_the_run(workdir: str) -> None:
    with pytest.raises(LaunchError, match=r"no folder above it .*/RUN, or --cache=DIR"):
        default_cache(workdir)


def test_no_compiler_flag_stands_in_a_launcher() -> None:
    for path in (Path(__file__).parents[2] / "scripts" / "launch").iterdir():
        if path.is_file():
            assert "--xla_" not in path.read_text(encoding="utf-8"), path
