"""Operations of matrix products in compiled programs, against the compiler and the model."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from bert_lamb import model
from bert_lamb.config import EvaluationConfig, ModelConfig, PhaseConfig, PretrainConfig
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.hlo import read_program
from bert_lamb.planning.parts import counted_flops, units
from bert_lamb.planning.products import product_flops
from bert_lamb.planning.schedule import schedule
from bert_lamb.planning.topology import compile_absent
from tests.planning.handwritten import written
from tests.planning.programs import f32


def _flops(text: str) -> int:
    program = read_program(text)
    return counted_flops(units(program, schedule(program), {}))


def _of_text(*lines: str) -> int:
    return _flops(written(*lines))


def test_a_product_of_matrices():
    # [32, 8] times [8, 5].
    line = "%d = f32[32,5] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert _of_text("%q = f32[8,5] constant(0)", line) == 2 * 32 * 8 * 5


def test_a_batch_of_products():
    lines = (
        "%a = f32[6,4,8] bitcast(%p)",
        "%b = f32[6,8,5] bitcast(%p)",
        "%d = f32[6,4,5] dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_batch_dims={0}, rhs_contracting_dims={1}",
    )
    assert _of_text(*lines) == 2 * 6 * 4 * 8 * 5


def test_a_product_of_a_library():
    lines = (
        "%a = f32[6,4,8] bitcast(%p)",
        "%b = f32[6,8,5] bitcast(%p)",
        '%d = f32[6,4,5] custom-call(%a, %b), custom_call_target="__onednn$matmul"',
    )
    assert _of_text(*lines) == 2 * 6 * 4 * 8 * 5


# As the TPU compiler writes the scores of attention, 32 rows of 16 heads: [128, 64] x [64, 128].
SCORES = (
    "%q = f32[32,16,128,64] bitcast(%p)",
    "%k = f32[32,16,128,64] bitcast(%p)",
    "%s = f32[32,16,128,128] convolution(%q, %k), window={size=32x16 stride=31x15 "
    "lhs_dilate=32x16}, dim_labels=01bf_01oi->01bf",
)
# The same for probabilities times values, with the window reversed over a padded array.
MIXED = (
    "%w = f32[32,16,128,128] bitcast(%p)",
    "%v = f32[32,16,128,64] bitcast(%p)",
    "%o = f32[32,16,128,64] convolution(%w, %v), window={size=32x16 stride=32x16 "
    "pad=31_31x15_15 lhs_dilate=31x15 rhs_reversal=1x1}, dim_labels=01fb_01io->01bf",
)


@pytest.mark.parametrize("lines", [SCORES, MIXED], ids=["scores", "values"])
def test_a_batch_of_products_written_as_a_convolution(lines):
    assert _of_text(*lines) == 2 * 32 * 16 * 128 * 64 * 128


def test_rows_met_one_by_one_by_a_window_over_padding_count_once():
    # A projection of 32 rows of 128 tokens, [4096, 1024] x [1024, 16 x 64].
    lines = (
        "%w = f32[1024,16,64,1] bitcast(%p)",
        "%x = f32[32,128,1024,1] bitcast(%p)",
        "%y = f32[16,64,32,128] convolution(%w, %x), window={size=1x32 pad=0_0x31_31 "
        "rhs_reversal=0x1}, dim_labels=f0b1_1oi0->0b1f",
    )
    assert _of_text(*lines) == 2 * 32 * 128 * 1024 * 16 * 64


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"window_strides": (2, 1), "padding": ((1, 2), (0, 3))},
        {"lhs_dilation": (2, 3), "padding": ((2, 2), (4, 4))},
        {"rhs_dilation": (2, 1)},
        {"feature_group_count": 2},
        {"batch_group_count": 2},
    ],
    ids=lambda settings: next(iter(settings), "plain"),
)
def test_convolutions_count_as_the_compiler_counts_them(settings):
    groups = settings.get("feature_group_count", 1)

    def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
        given = {"window_strides": (1, 1), "padding": "VALID", **settings}
        return jax.lax.conv_general_dilated(x, kernel, **given)

    lowered = jax.jit(convolve).lower(f32(4, 6, 9, 8), f32(10, 6 // groups, 3, 2))
    compiled = lowered.compile()
    steps = schedule(read_program(compiled.as_text()))
    products = [step for step in steps if step.matrix_product]
    if not products:
        pytest.skip("this compiler calls a library for it")
    assert sum(map(product_flops, products)) == compiled.cost_analysis()["flops"]


def test_products_in_loops_count_as_often_as_they_run():
    def chain(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda y, _: (jnp.sin(y @ y), None), x, None, length=7)[0]

    compiled = jax.jit(chain).lower(f32(64, 64)).compile()
    assert _flops(compiled.as_text()) == 7 * 2 * 64**3


SMALL = ModelConfig(
    vocab_size=512, num_layers=2, hidden_size=64, num_heads=4, intermediate_size=256,
    scan_layers=True,
)  # fmt: skip


def _counted(model_config: ModelConfig, phase: PhaseConfig) -> int:
    """Operations in the step of a phase, compiled for one CPU in little time."""
    evaluation = EvaluationConfig(batch=phase.global_batch)
    config = PretrainConfig(model=model_config, phases=(phase,), evaluation=evaluation)
    lowered, _ = lower_phase(config, 0, make_mesh(config.parallel, jax.devices()[:1]))
    compiled = compile_absent(lowered, {"xla_backend_optimization_level": 0})
    return _flops(compiled.as_text())


@pytest.mark.parametrize(
    ("T", "P", "rows"), [(128, 20, 4), (512, 80, 2)], ids=["phase 1", "phase 2, accumulated"]
)
def test_the_models_operations_are_those_of_the_compiled_step_within_two_per_cent(T, P, rows):
    phase = PhaseConfig(
        records="none", seq_length=T, global_batch=4, max_predictions=P, max_rows_per_device=rows
    )
    counted = _counted(SMALL, phase)
    assert 4 * model.flops_per_row(SMALL, T, P) == pytest.approx(counted, rel=0.02)


@pytest.mark.slow
def test_recomputation_counts_in_the_compiled_step_and_not_in_the_model():
    phase = PhaseConfig(records="none", global_batch=4)
    counted = _counted(dataclasses.replace(SMALL, remat="full"), phase)
    # One more forward pass through the layers, which hold three quarters of the operations.
    assert counted > 1.2 * 4 * model.flops_per_row(SMALL, 128, 20)


def test_a_product_whose_operands_are_not_there_is_refused():
    with pytest.raises(ValueError, match="d: the shapes of its operands"):
        _of_text("%d = f32[32,5] dot(%p, %missing), lhs_contracting_dims={1}")
