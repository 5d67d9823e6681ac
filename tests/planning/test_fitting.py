"""Steps compiled, read, kept and made to fit, on one CPU whose memory is as small as one likes."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from bert_lamb.config import EvaluationConfig, ModelConfig, PhaseConfig, PretrainConfig
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.planning import cache, fitting
from bert_lamb.planning.chips import CHIPS
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.fitting import Fit, Workshop, fit_phase
from bert_lamb.planning.predict import Assumptions
from bert_lamb.planning.reading import TooLargeError, too_large, usable_bytes
from bert_lamb.planning.topology import compile_absent, topology_devices
from tests.planning.programs import needs_libtpu

MODEL = ModelConfig(
    vocab_size=64, num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32,
    max_positions=64, vocab_multiple=8, scan_layers=True, hidden_dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip


def _config(rows: int = 8, **changes: object) -> PretrainConfig:
    phase = PhaseConfig(records="none", seq_length=64, global_batch=rows, max_predictions=8)
    return PretrainConfig(
        model=dataclasses.replace(MODEL, **changes),
        phases=(phase,),
        evaluation=EvaluationConfig(batch=rows),
    )


def _workshop(folder: Path, capacity: int, lines: list[str], quick: bool = False) -> Workshop:
    mesh = make_mesh(_config().parallel, jax.devices()[:1])
    return Workshop(mesh, CHIPS[1], capacity, Assumptions(), folder, quick, lines.append)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Leaves out LLVM's optimizations, most of the compile time and none of what is tested."""

    def compile_quickly(lowered: jax.stages.Lowered, options: dict) -> jax.stages.Compiled:
        return compile_absent(lowered, options | {"xla_backend_optimization_level": 0})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fitting, "compile_absent", compile_quickly)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readings")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Fit:
    """The step where memory is plenty."""
    return fit_phase(_config(), 0, _workshop(folder, 2**30, []))


def test_memory_is_what_the_compiler_says_and_no_less(whole: Fit, folder: Path):
    workshop = _workshop(folder, 2**30, [])
    compiled = fitting.compile_absent(*lower_phase(_config(), 0, workshop.mesh))
    says = compiled.memory_analysis()
    memory = whole.figures.memory
    assert memory.arguments == says.argument_size_in_bytes
    assert memory.temporaries == says.temp_size_in_bytes
    assert memory.peak >= says.argument_size_in_bytes + says.temp_size_in_bytes
    assert whole.fits
    assert (whole.rows, whole.micro_batches, whole.pass_rows) == (8, 1, 8)


def test_a_step_is_compiled_once_and_read_from_its_file_afterwards(whole: Fit, folder: Path):
    lines: list[str] = []
    again = fit_phase(_config(), 0, _workshop(folder, 2**30, lines))
    assert again == whole
    (line,) = lines
    assert "read from" in line


@pytest.mark.slow
def test_where_the_step_does_not_fit_the_most_rows_that_do_are_found(whole: Fit, folder: Path):
    fewer = dataclasses.replace(_config().phases[0], max_rows_per_device=2)
    two = dataclasses.replace(_config(), phases=(fewer,))
    enough = fit_phase(two, 0, _workshop(folder, 2**30, [])).needed
    assert enough < whole.needed
    fit = fit_phase(_config(), 0, _workshop(folder, enough, []))
    assert not fit.fits
    assert fit.needed == whole.needed
    assert fit.largest_rows == 2
    assert fit_phase(_config(), 0, _workshop(folder, 1000, [])).largest_rows is None


@pytest.mark.slow
def test_few_layers_draw_a_line_to_many(folder: Path):
    lines: list[str] = []
    drawn = fit_phase(_config(num_layers=6), 0, _workshop(folder, 2**30, lines, quick=True))
    real = fit_phase(_config(num_layers=6), 0, _workshop(folder, 2**30, []))
    assert any("2 layers" in line for line in lines)
    assert drawn.figures.flops == pytest.approx(real.figures.flops, rel=0.02)
    assert drawn.figures.memory.arguments == pytest.approx(real.figures.memory.arguments, rel=0.02)


def test_files_that_are_no_readings_count_as_none(tmp_path: Path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text('{"reading": {"memory": 3}}')
    assert [cache.load(tmp_path, key) for key in ("a", "b", "missing")] == [None] * 3


def test_that_a_step_is_too_large_is_kept_as_well(tmp_path: Path):
    cache.save(tmp_path / "new", "a", TooLargeError(17, 16))
    found = cache.load(tmp_path / "new", "a")
    assert isinstance(found, TooLargeError)
    assert (found.used, found.capacity) == (17, 16)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.json"]


def test_the_name_of_a_reading_depends_on_program_options_and_devices(folder: Path):
    devices = jax.devices()
    lowered, other = (jax.jit(f).lower(1.0) for f in (lambda x: x + 1, lambda x: x + 2))
    keys = {
        cache.key_of(lowered, {}, devices[:1]),
        cache.key_of(other, {}, devices[:1]),
        cache.key_of(lowered, {"xla_flag": True}, devices[:1]),
        cache.key_of(lowered, {}, devices[:2]),
    }
    assert len(keys) == 4
    assert cache.key_of(lowered, {}, devices[:1]) in keys


@pytest.mark.parametrize(
    ("message", "used", "capacity"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
         "temporaries (17.91G) exceeds available HBM (15.48G).", 17.91, 15.48),
        ("RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
         "hbm. Used 16.74G of 15.48G hbm. Exceeded hbm capacity by 1.26G.", 16.74, 15.48),
    ],
)  # fmt: skip
def test_the_compilers_words_about_memory_are_understood(message, used, capacity):
    found = too_large(RuntimeError(message))
    assert found.used == round(used * 2**30)
    assert found.capacity == round(capacity * 2**30)
    assert too_large(RuntimeError("INTERNAL: something else")) is None


@needs_libtpu
@pytest.mark.parametrize(
    ("topology", "gib"), [("v2:2x2", 7.48), ("v3:2x2", 15.48), ("v4:2x2x1", 30.75),
                          ("v5e:1x1", 15.75), ("v6e:1x1", 31.25)],
)  # fmt: skip
def test_the_compiler_is_asked_for_the_memory_of_a_device(topology, gib):
    assert usable_bytes(topology_devices(topology)[0]) == round(gib * 2**30)


def test_a_compiler_that_does_not_name_its_memory_is_an_error():
    with pytest.raises(ValueError, match="cpu: the compiler does not name its memory"):
        usable_bytes(jax.devices()[0])
