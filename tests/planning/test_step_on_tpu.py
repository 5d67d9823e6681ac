"""What the trainer's step must not contain when it is compiled for a TPU; cost levers as guards.

Two layers of BERT-Large on 32 cores of v3, its optimizer cut over a ring of eight.
"""

import importlib.util
import math

import pytest

from bert_lamb.config import (
    EvaluationConfig,
    ModelConfig,
    ParallelConfig,
    PhaseConfig,
    PretrainConfig,
)
from bert_lamb.model.dropout import effective_rate
from bert_lamb.parallel.mesh import make_mesh, row_devices
from bert_lamb.planning.chips import chip_of
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.hlo import read_program
from bert_lamb.planning.parts import ATTENTION, COPIES, MATRIX, OPTIMIZER
from bert_lamb.planning.reading import read_step
from bert_lamb.planning.schedule import schedule
from bert_lamb.planning.topology import compile_absent, topology_devices

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason="needs libtpu, which bert-lamb[tpu] installs",
    ),
]
B, T, D = 8, 128, 1024  # rows of one core


@pytest.fixture(scope="module")
def compiled():
    devices = topology_devices("v3:4x4")
    parallel = ParallelConfig(fsdp=8, reduce_dtype="bfloat16")
    mesh = make_mesh(parallel, devices)
    rows = row_devices(mesh)
    config = PretrainConfig(
        model=ModelConfig(
            vocab_size=4000, num_layers=2, hidden_size=D, num_heads=16, intermediate_size=4 * D,
            max_positions=512, vocab_multiple=1024, dtype="bfloat16", dropout_rng="rbg",
            activation="gelu_tanh",
        ),
        parallel=parallel,
        phases=(
            PhaseConfig(records="none", seq_length=T, global_batch=B * rows, max_predictions=20),
        ),
        evaluation=EvaluationConfig(batch=rows),
    )  # fmt: skip
    program = compile_absent(*lower_phase(config, 0, mesh))
    return program, mesh, chip_of(devices[0])


@pytest.fixture(scope="module")
def reading(compiled):
    return read_step(*compiled, 0.0)


@pytest.fixture(scope="module")
def instructions(compiled):
    """What runs on its own, outside of fusions."""
    steps = schedule(read_program(compiled[0].as_text()))
    return [
        s.instruction for s in steps if all(c.instruction.opcode != "fusion" for c in s.callers)
    ]


def test_dropout_draws_from_the_hardware_and_not_from_threefry(reading, compiled):
    # Per layer two sites of [B, T, D] and one of [B, N, T, T], and the embeddings.
    elements = 2 * (2 * B * T * D + B * 16 * T * T) + B * T * D
    # Of integers of 8 bits the zeros at the end of the threshold (26) need no random bit.
    threshold = round(2**8 * effective_rate(ModelConfig.hidden_dropout))
    bits = 8 - ((threshold & -threshold).bit_length() - 1)
    assert reading.random_bytes == pytest.approx(elements * bits / 8, rel=0.01)
    for computation in read_program(compiled[0].as_text()).computations.values():
        for one in computation.instructions:
            # Keys are made by threefry, a few words; bits are not.
            assert "threefry" not in one.op_name or one.bytes < 2**12, one


def test_activations_are_not_copied_into_another_layout(instructions):
    moved = [
        one for one in instructions
        if one.opcode in ("copy", "transpose")
        and any(math.prod(array.dims) >= B * T * D for array in one.arrays)
    ]  # fmt: skip
    assert not moved


def test_few_collectives_and_none_in_a_wider_dtype_than_asked_for(reading):
    assert len(reading.exchanges) <= 30
    large = [one for one in reading.exchanges if one.bytes > 2**20]
    assert {one.dtypes for one in large} == {("bf16",)}
    scattered = [one for one in large if one.kind == "reduce-scatter"]
    # Kernels, table, pooler and transform: none is summed whole and cut afterwards.
    assert len(scattered) >= 9
    assert not [one for one in large if one.kind == "all-reduce" and one.axes == ("fsdp",)]


def test_the_update_takes_little_of_the_step_when_sharded(reading):
    # On 64 cores of a ring it is at most a hundredth; here the parts are eight times as large, and
    # a layer has an eighth of the rows less than a quarter of the work.
    total = sum(reading.cycles.values())
    ring, rows = 64 / 8, 32 / B
    share = reading.cycles[OPTIMIZER] / ring / (total * rows)
    assert 0 < share <= 0.01
    assert reading.cycles[COPIES] < 0.05 * total
    assert reading.cycles[MATRIX] > 0.6 * total
    assert reading.cycles[ATTENTION] > 0
