"""The trainer's step compiled for absent TPUs: what it sends, in which dtype, and when."""

import functools
import importlib.util

import pytest

from bert_lamb.config import (
    EvaluationConfig,
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    PhaseConfig,
    PretrainConfig,
)
from bert_lamb.parallel.mesh import make_mesh, row_devices
from bert_lamb.parallel.overlap import overlap_options
from bert_lamb.planning.collectives import Collective, collectives
from bert_lamb.planning.compile import compile_phase
from bert_lamb.planning.topology import topology_devices

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs libtpu, which bert-lamb[tpu] installs",
)
LAYERS = 3


@functools.cache
def _sent(
    topology: str, parallel: ParallelConfig, clip: str = "global", micro_batches: int = 1
) -> list[Collective]:
    devices = topology_devices(topology)
    mesh = make_mesh(parallel, devices)
    rows = row_devices(mesh)
    config = PretrainConfig(
        model=ModelConfig(
            vocab_size=1000, num_layers=LAYERS, hidden_size=512, num_heads=8,
            intermediate_size=2048, max_positions=128, dtype="bfloat16", dropout_rng="rbg",
            activation="gelu_tanh",
        ),
        optimizer=OptimizerConfig(clip=clip),
        parallel=parallel,
        phases=(
            PhaseConfig(
                records="none", seq_length=128, global_batch=8 * micro_batches * rows,
                max_rows_per_device=8, max_predictions=20,
            ),
        ),
        evaluation=EvaluationConfig(batch=rows),
        logging=LoggingConfig(),
    )  # fmt: skip
    text = compile_phase(config, 0, devices).as_text()
    found = collectives(text, dict(mesh.shape))
    return [one for one in found if one.group_size != 1]


def _large(found: list[Collective]) -> list[Collective]:
    return [one for one in found if one.bytes > 2**18]


def test_gradients_are_sent_in_the_dtype_that_was_asked_for_once_after_all_micro_batches():
    found = _large(_sent("v3:2x2", ParallelConfig(reduce_dtype="bfloat16"), micro_batches=2))
    assert {one.kind for one in found} == {"all-reduce"}
    assert {one.dtypes for one in found} == {("bf16",)}
    assert {(one.loops, one.times, one.axes) for one in found} == {((), 1, ("data",))}
    # Six stacked matrices, four tables and matrices outside; the compiler may join some.
    assert sum(one.bytes for one in found) >= 2 * LAYERS * 12 * 512 * 512


def test_a_sharded_optimizer_gathers_bf16_and_scatters_once():
    found = _large(_sent("v5e:2x4", ParallelConfig(fsdp=4)))
    gathers = [one for one in found if one.kind == "all-gather"]
    assert {(one.axes, one.loops) for one in found if one.kind == "reduce-scatter"} == {
        (("fsdp",), ())
    }
    assert all(one.axes == ("fsdp",) and one.times == 1 for one in gathers)
    in_bf16 = [one for one in gathers if one.dtypes == ("bf16",)]
    assert sum(one.bytes for one in in_bf16) >= 2 * LAYERS * 12 * 512 * 512
    assert len(found) <= 30


@pytest.mark.parametrize("clip", ["global", "bucket"])
def test_sums_by_layer_start_before_the_backward_pass_ends_and_run_beside_it(clip):
    found = _large(_sent("v5e:2x4", ParallelConfig(reduce="layer"), clip))
    early = [one for one in found if one.kind == "all-reduce" and one.backward_after > 0]
    # All layers but the first, whose gradient comes last.
    assert len(early) >= 4 * (LAYERS - 1)
    assert sum(one.asynchronous and one.products_during > 0 for one in early) >= LAYERS - 1


def test_sums_once_a_step_come_after_the_backward_pass():
    found = _large(_sent("v5e:2x4", ParallelConfig()))
    assert found
    # The embeddings' own gradient has no matrix product of a layer behind it.
    assert all(one.backward_before > one.backward_after for one in found)


def test_the_tensor_axis_sums_activations_in_each_half_of_a_layer():
    found = _sent("v5e:2x4", ParallelConfig(tensor=2))
    sums = [one for one in found if one.kind == "all-reduce" and one.axes == ("tensor",)]
    activations = 8 * 128 * 512
    halves = [one for one in sums if one.bytes >= 2 * activations]
    assert 3 * LAYERS <= len(halves) <= 4 * LAYERS + 2


def test_options_for_overlap_follow_the_kind_of_device():
    layer = ParallelConfig(reduce="layer", fsdp=4)
    v5e = overlap_options(layer, "TPU v5 lite", "tpu")
    assert v5e["xla_enable_async_all_reduce"] is True
    assert "xla_enable_async_all_reduce" not in overlap_options(layer, "TPU v3", "tpu")
    assert overlap_options(ParallelConfig(overlap=False), "TPU v5 lite", "tpu") == {}
    assert overlap_options(layer, "cpu", "cpu") == {}
    assert overlap_options(ParallelConfig(), "NVIDIA H200", "gpu")
    assert overlap_options(layer, "TPU v99", "tpu") == {}
