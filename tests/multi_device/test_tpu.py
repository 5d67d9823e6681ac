"""The trainer's step compiled for absent TPUs: what it sends, in which dtype, and when.

Each of these programs takes half a minute to compile; scripts/exchange_report.py does more of them.
"""

import importlib.util

import pytest

from bert_lamb.config import (
    EvaluationConfig,
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
LAYERS = 2


def _sent(
    topology: str, parallel: ParallelConfig, clip: str, *, scan_layers: bool
) -> list[Collective]:
    """What moves more than 256 KiB in a step."""
    devices = topology_devices(topology)
    mesh = make_mesh(parallel, devices)
    rows = row_devices(mesh)
    config = PretrainConfig(
        model=ModelConfig(
            vocab_size=1000, num_layers=LAYERS, hidden_size=512, num_heads=8,
            intermediate_size=2048, max_positions=128, dtype="bfloat16", dropout_rng="rbg",
            activation="gelu_tanh", scan_layers=scan_layers,
        ),
        optimizer=OptimizerConfig(clip=clip),
        parallel=parallel,
        phases=(
            PhaseConfig(records="none", seq_length=128, global_batch=8 * rows, max_predictions=20),
        ),
        evaluation=EvaluationConfig(batch=rows),
    )  # fmt: skip
    text = compile_phase(config, 0, devices).as_text()
    found = collectives(text, dict(mesh.shape))
    return [one for one in found if one.group_size != 1 and one.bytes > 2**18]


def test_sums_by_layer_run_beside_the_rest_of_the_backward_pass():
    found = _sent("v5e:2x4", ParallelConfig(reduce="layer"), "global", scan_layers=False)
    assert {one.kind for one in found} == {"all-reduce"}
    assert {one.dtypes for one in found} == {("f32",)}
    beside = [one for one in found if one.asynchronous and one.products_during > 0]
    early = [one for one in beside if one.backward_after > 0]
    # Six matrices in each layer; the first layer's gradients come last.
    assert len(beside) >= 6 * (LAYERS - 1)
    assert len(early) >= 4 * (LAYERS - 1)


def test_gradients_of_a_bf16_backward_pass_are_summed_in_fp32_by_default():
    found = _sent("v3:2x2", ParallelConfig(), "global", scan_layers=True)
    assert {(one.kind, one.dtypes, one.axes, one.loops) for one in found} == {
        ("all-reduce", ("f32",), ("data",), ())
    }
    assert sum(one.bytes for one in found) >= 4 * LAYERS * 12 * 512 * 512


def test_clipped_layers_are_summed_in_bf16_inside_the_backward_pass():
    parallel = ParallelConfig(reduce="layer", reduce_dtype="bfloat16")
    found = _sent("v5e:2x4", parallel, "bucket", scan_layers=True)
    assert {(one.kind, one.dtypes, one.axes) for one in found} == {
        ("all-reduce", ("bf16",), ("data",))
    }
    layers = [one for one in found if one.loops]
    assert len(layers) == 6
    assert all(one.times == LAYERS and one.backward_after > 0 for one in layers)
    assert all("transpose(jvp" in one.op_name for one in layers)


def test_options_for_overlap_follow_the_kind_of_device():
    layer = ParallelConfig(reduce="layer", fsdp=4)
    v5e = overlap_options(layer, "TPU v5 lite", "tpu")
    assert v5e["xla_enable_async_all_reduce"] is True
    assert "xla_enable_async_all_reduce" not in overlap_options(layer, "TPU v3", "tpu")
    assert overlap_options(ParallelConfig(overlap=False), "TPU v5 lite", "tpu") == {}
    assert overlap_options(layer, "cpu", "cpu") == {}
    assert overlap_options(ParallelConfig(), "NVIDIA H200", "gpu")
    assert overlap_options(layer, "TPU v99", "tpu") == {}
