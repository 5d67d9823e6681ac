"""What the compiled step sends between devices: kinds, numbers, axes, dtypes and places."""

import dataclasses
from collections import Counter

import pytest

from bert_lamb.config import OptimizerConfig, ParallelConfig
from bert_lamb.planning.collectives import Collective, collectives
from tests.steps import MODEL, Setting, compiled

# The tiny model's matrices and tables that fsdp cuts: six in the layers, four outside.
LAYER, OUTSIDE = 6, 4


def _sent(setting: Setting) -> list[Collective]:
    step, _, layout = compiled(setting)
    found = collectives(step.as_text(), dict(layout.mesh.shape))
    # A sum over axes of one device each sends nothing; not every backend leaves it out.
    return [one for one in found if one.group_size != 1]


def _count(found: list[Collective], *, loops: bool | None = None) -> Counter:
    """Counts (kind, axes); of those inside or outside of loops only, where asked."""
    return Counter(
        (one.kind, "+".join(one.axes or ("?",)))
        for one in found
        if loops is None or bool(one.loops) is loops
    )


@pytest.mark.parametrize("micro_batches", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_data_parallel_sums_gradients_once_whatever_the_accumulation(micro_batches):
    found = _sent(Setting(micro_batches=micro_batches))
    # The divisors of the loss, then gradients and what is reported, which XLA joins on CPUs.
    assert _count(found) == {("all-reduce", "data"): 2}
    assert all(one.times == 1 and one.dtypes == ("f32",) for one in found)


@pytest.mark.parametrize("micro_batches", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_sharded_optimizer_gathers_and_scatters_once_a_step(micro_batches):
    parallel = ParallelConfig(fsdp=4)
    found = _sent(Setting(parallel, micro_batches=micro_batches))
    assert _count(found, loops=True) == {}
    outside = _count(found, loops=False)
    assert outside.pop(("all-gather", "fsdp")) == LAYER + OUTSIDE
    assert outside.pop(("reduce-scatter", "fsdp")) == LAYER + OUTSIDE
    # Divisors; whole parameters with what is reported; parts over data; LAMB's norms.
    assert set(outside) == {
        ("all-reduce", "data+fsdp"), ("all-reduce", "data"), ("all-reduce", "fsdp")
    }  # fmt: skip
    assert sum(outside.values()) <= 6


def test_fsdp_gathers_each_layer_forwards_and_backwards():
    found = _sent(Setting(ParallelConfig(fsdp=8, gather="layer")))
    inside, outside = _count(found, loops=True), _count(found, loops=False)
    assert inside == {("all-gather", "fsdp"): 2 * LAYER, ("reduce-scatter", "fsdp"): LAYER}
    assert all(one.times == MODEL.num_layers for one in found if one.loops)
    assert outside.pop(("all-gather", "fsdp")) == OUTSIDE
    assert outside.pop(("reduce-scatter", "fsdp")) == OUTSIDE
    assert set(outside) == {("all-reduce", "fsdp")}


def test_tensor_parallel_sums_once_after_each_half_of_a_layer():
    found = _sent(Setting(ParallelConfig(data=4, tensor=2)))
    # Beside activations one number a layer: the largest bound on the logits of any head.
    assert [one.bytes for one in found if one.loops and one.bytes < 8] == [4]
    inside = _count([one for one in found if one.bytes > 4], loops=True)
    assert set(inside) == {("all-reduce", "tensor")}
    # Two halves, forwards and backwards; XLA joins some of them.
    assert 3 <= inside["all-reduce", "tensor"] <= 4
    # Gradients: those that tensor cuts, and all others.
    outside = _count(found, loops=False)
    assert outside["all-reduce", "data"] <= 3
    # Only the two halves of the largest logit and its place are put together.
    gathered = [one for one in found if one.kind == "all-gather"]
    assert sum(one.bytes for one in gathered) < 4096


def test_reduced_by_layer_inside_the_backward_pass():
    found = _sent(Setting(ParallelConfig(reduce="layer")))
    assert _count(found, loops=True) == {("all-reduce", "data"): 1}
    (one,) = [one for one in found if one.loops]
    assert one.times == MODEL.num_layers
    assert "transpose(jvp" in one.op_name


def test_with_accumulation_reduction_waits_for_the_last_micro_batch():
    found = _sent(Setting(ParallelConfig(reduce="layer"), micro_batches=2))
    assert _count(found, loops=True) == {}


def test_bucket_clipping_waits_for_no_norm_of_the_whole():
    """The only sums are divisors, layers, the rest, and what is reported."""
    optimizer = OptimizerConfig(clip="bucket")
    found = _sent(Setting(ParallelConfig(reduce="layer"), optimizer=optimizer))
    assert _count(found, loops=True) == {("all-reduce", "data"): 1}
    assert _count(found, loops=False)["all-reduce", "data"] == 2


@pytest.mark.slow
def test_unrolled_layers_send_what_scanned_ones_do():
    unrolled = dataclasses.replace(MODEL, scan_layers=False)
    found = _sent(Setting(ParallelConfig(fsdp=4, gather="layer", reduce="layer"), model=unrolled))
    assert _count(found, loops=True) == {}
    assert _count(found)["reduce-scatter", "fsdp"] == LAYER * MODEL.num_layers + OUTSIDE
