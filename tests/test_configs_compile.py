"""Every file under configs/ compiles, shrunk to a test's size, and sends what its layout asks for.

Shrinking keeps what decides about the program: the optimizer, dropout, attention, types,
accumulation, and parameters cut over a ring; lengths and the form of the schedule as well in the
slow tests alone. Of the many files few different programs are left; each is compiled once.
scripts/compile_configs.py compiles the files at their own size.
"""

import dataclasses
import functools
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import pytest

from bert_lamb import recipes
from bert_lamb.cli.overrides import load_config
from bert_lamb.config import (
    CheckpointConfig,
    ConfigError,
    EvaluationConfig,
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    PhaseConfig,
    PretrainConfig,
)
from bert_lamb.model import pretraining
from bert_lamb.parallel.layout import Layout
from bert_lamb.parallel.mesh import make_mesh
from bert_lamb.parallel.rules import axis_of
from bert_lamb.planning.collectives import Collective, collectives
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.reading import Exchange, Memory, StepReading
from bert_lamb.planning.topology import compile_absent, topology_devices
from bert_lamb.training.preflight import check_devices, micro_batches
from bert_lamb.training.start import lay_out
from tests.planning.programs import needs_libtpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import compile_configs

# tests/finetuning/test_configs.py has the others.
FILES = {
    path.stem: path
    for path in sorted(compile_configs.CONFIGS.glob("*.py"))
    if not path.stem.startswith(("squad", "glue"))
}
ON_PODS = compile_configs.pod_configs()
# Devices here, and those over which parameters are cut where the file cuts them: what is also
# chosen where it asks for a ring (parallel.fsdp = 0), on eight CPUs as on v3:2x2.
DEVICES, RING = 8, 4
SHORTER = 8  # times
BYTES = {"f32": 4, "bf16": 2}
# What is summed beside gradients: divisors, norms, what is reported.
FEW = 256


@dataclasses.dataclass(frozen=True)
class Step:
    """A shrunk step: what it sends, where its parameters lie, and its text before compilation."""

    sent: tuple[Collective, ...]
    layout: Layout
    lowered: str

    def sizes(self, *, cut: bool) -> list[int]:
        """Numbers of each parameter that fsdp cuts, or of each that it does not."""
        leaves = zip(
            jax.tree.leaves(self.layout.shapes), jax.tree.leaves(self.layout.specs), strict=True
        )
        return sorted(
            math.prod(shape.shape) for shape, spec in leaves
            if (axis_of(spec, "fsdp") is not None) is cut
        )  # fmt: skip


# Shrinking.


def _shrunk(config: PretrainConfig, index: int, cores: int) -> PretrainConfig:
    """The run of one phase alone, small, with its form of the schedule.

    Args:
        config: from its file.
        index: of the phase.
        cores: that the file is laid out for.
    """
    parallel = dataclasses.replace(config.parallel, fsdp=min(config.parallel.fsdp, RING))
    divisor = 2 if parallel.fsdp == 1 else RING
    return PretrainConfig(
        model=_shrunk_model(config.model, divisor),
        optimizer=_with_usual_numbers(config.optimizer),
        phases=(_shrunk_phase(config.phases[index], cores),),
        parallel=parallel,
        checkpoint=CheckpointConfig(),
        evaluation=EvaluationConfig(batch=DEVICES),
        logging=LoggingConfig(tensorboard=False),
        seed=config.seed,
        nonfinite_limit=config.nonfinite_limit,
    )


def _shrunk_model(model: ModelConfig, divisor: int) -> ModelConfig:
    heads = math.gcd(model.num_heads, divisor)
    width = 8 * heads
    return dataclasses.replace(
        model,
        vocab_size=1_000,
        num_layers=2,
        hidden_size=width,
        num_heads=heads,
        intermediate_size=model.intermediate_size * width // model.hidden_size,
        max_positions=model.max_positions // SHORTER,
        vocab_multiple=model.vocab_multiple // 16,
    )


def _with_usual_numbers(optimizer: OptimizerConfig) -> OptimizerConfig:
    """The same optimizer; a coefficient is another constant of the same program, but for 0."""
    usual = OptimizerConfig()
    keys = [key for key in ("b1", "b2", "weight_decay") if getattr(optimizer, key)]
    return dataclasses.replace(optimizer, **{key: getattr(usual, key) for key in keys})


def _shrunk_phase(phase: PhaseConfig, cores: int) -> PhaseConfig:
    parts = min(2, micro_batches(phase, cores))
    through = bool(phase.schedule_steps)
    return PhaseConfig(
        records="none",
        seq_length=phase.seq_length // SHORTER,
        global_batch=DEVICES * 2 * parts,
        steps=10,
        max_predictions=-(-phase.max_predictions // SHORTER),
        warmup_steps=min(phase.warmup_steps, 4),
        constant_steps=min(phase.constant_steps, 2),
        decay_power=phase.decay_power,
        decay_form=phase.decay_form,
        warmup_start=max(phase.warmup_start, -2),
        schedule_steps=20 * through,
        schedule_from=min(phase.schedule_from, 10),
        max_rows_per_device=2,
    )


def _phases(name: str) -> list[PretrainConfig]:
    """The shrunk phases of a file; one that is laid out for no slice runs on one device."""
    config = load_config(str(FILES[name]), [])
    cores = 1
    if name in ON_PODS:
        cores = recipes.CORES_PER_CHIP * compile_configs.chips_of(FILES[name])
    return [_shrunk(config, index, cores) for index in range(len(config.phases))]


def _alike(config: PretrainConfig) -> PretrainConfig:
    """The same with the shortest rows and the usual schedule, so that more programs are equal."""
    (phase,) = config.phases
    short = PhaseConfig(
        records="none",
        seq_length=16,
        global_batch=phase.global_batch,
        max_predictions=3,
        max_rows_per_device=phase.max_rows_per_device,
    )
    return dataclasses.replace(config, phases=(short,))


# What is compiled, and what it may send.


@functools.cache
def _compiled(config: PretrainConfig, devices: int) -> Step:
    # As in tests/quick.py: the optimizations left out come after what is looked at.
    quick = {"xla_backend_optimization_level": 0}
    return _compile(config, jax.devices()[:devices], quick)


@functools.cache
def _compiled_for_tpus(config: PretrainConfig) -> Step:
    return _compile(config, topology_devices("v3:2x2"), {})


def _compile(config: PretrainConfig, devices: Sequence[jax.Device], extra: dict[str, int]) -> Step:
    mesh = make_mesh(config.parallel, devices)
    lowered, options = lower_phase(config, 0, mesh)
    here = devices[0].platform == "cpu"
    compiled = lowered.compile({**options, **extra}) if here else compile_absent(lowered, options)
    found = collectives(compiled.as_text(), dict(mesh.shape))
    sent = tuple(one for one in found if one.group_size != 1)
    return Step(sent, lay_out(pretraining(config.model), mesh), lowered.as_text())


def _numbers(one: Collective) -> int:
    """Numbers of the array that a collective sends."""
    (dtype,) = one.dtypes
    return one.bytes // BYTES[dtype]


def _of_kind(sent: Sequence[Collective], kind: str) -> list[Collective]:
    return [one for one in sent if one.kind == kind]


def _check_cut(step: Step) -> None:
    """What is cut is gathered once and scattered once; the rest are few small sums."""
    assert not [one for one in step.sent if one.loops or one.times != 1]
    cut, whole = step.sizes(cut=True), step.sizes(cut=False)
    assert len(cut) >= 10
    for kind in ("all-gather", "reduce-scatter"):
        found = _of_kind(step.sent, kind)
        assert {one.axes for one in found} == {("fsdp",)}
        assert sorted(map(_numbers, found)) == cut
    sums = _of_kind(step.sent, "all-reduce")
    assert len(sums) + 2 * len(cut) == len(step.sent) <= compile_configs.MOST_COLLECTIVES
    assert 1 <= len(sums) <= 6
    assert {one.axes for one in sums} <= {("data",), ("fsdp",), ("data", "fsdp")}
    # Parts over data and whole parameters over all; nothing is summed whole and cut afterwards.
    assert sum(map(_numbers, sums)) <= sum(cut) // RING + sum(whole) + FEW


def _check_whole(step: Step) -> None:
    """The divisors of the loss, then all gradients in one sum."""
    assert [(one.kind, one.axes, one.times) for one in step.sent] == [
        ("all-reduce", ("data",), 1)
    ] * 2
    assert not [one for one in step.sent if one.loops]
    assert not step.sizes(cut=True)
    gradients = sum(step.sizes(cut=False))
    assert gradients <= sum(map(_numbers, step.sent)) <= gradients + FEW


def _check(config: PretrainConfig) -> None:
    step = _compiled(config, DEVICES)
    if config.parallel.fsdp == 1:
        _check_whole(step)
        assert _compiled(config, 1).sent == ()
    else:
        assert step.layout.mesh.shape["fsdp"] == RING
        _check_cut(step)


@pytest.mark.parametrize("name", FILES)
def test_every_phase_of_every_config_compiles_and_sends_what_its_layout_asks_for(name):
    for config in _phases(name):
        _check(_alike(config))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_lengths_and_schedules_change_nothing_that_is_sent(name):
    for config in _phases(name):
        _check(config)


@pytest.mark.parametrize("name", FILES)
def test_dropout_comes_from_the_generator_that_the_config_names(name):
    for config in map(_alike, _phases(name)):
        text = _compiled(config, DEVICES).lowered
        words = compile_configs.threefry_words(text)
        model = config.model
        drops = max(model.hidden_dropout, model.attention_dropout) > 0
        drawn = words * 32 // model.dropout_bits
        a_row = config.phases[0].seq_length * model.hidden_size
        assert (drawn >= a_row) is (drops and model.dropout_rng == "threefry")
        assert ("rng_bit_generator" in text) is (drops and model.dropout_rng == "rbg")


def test_the_numbers_that_shrinking_leaves_out_are_constants_of_the_same_program():
    """But for the shapes, the file's own numbers give the program that stands for them."""
    name = "bert_large_mlperf_8192"
    config = load_config(str(FILES[name]), [])
    (small,) = _phases(name)
    keys = ("records", "seq_length", "global_batch", "max_predictions", "max_rows_per_device")
    shapes = {key: getattr(small.phases[0], key) for key in keys}
    phase = dataclasses.replace(config.phases[0], **shapes)
    own = dataclasses.replace(
        small, optimizer=config.optimizer, phases=(phase,), logging=config.logging
    )
    mesh = make_mesh(own.parallel, jax.devices())
    ours, shrunk = (lower_phase(each, 0, mesh)[0].as_text() for each in (own, small))
    assert ours != shrunk
    assert _without_constants(ours) == _without_constants(shrunk)


def _without_constants(text: str) -> str:
    """A lowered program without the values of its scalars, and their names, which follow them."""
    text = re.sub(r"dense<[^>\[]*>", "dense<>", text)
    return re.sub(r"%c(st)?(_\d+)?\b", "%c", text)


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("name", ON_PODS)
def test_configs_for_pods_compile_for_tpus_and_send_narrow_arrays(name):
    for config in map(_alike, _phases(name)):
        step = _compiled_for_tpus(config)
        assert not [one for one in step.sent if one.loops]
        assert len(step.sent) <= compile_configs.MOST_COLLECTIVES
        cut = step.sizes(cut=True)
        for kind in ("all-gather", "reduce-scatter"):
            found = _of_kind(step.sent, kind)
            assert {(one.axes, one.dtypes) for one in found} == {(("fsdp",), ("bf16",))}
            assert sorted(map(_numbers, found)) == cut
        assert compile_configs.threefry_words(step.lowered) <= compile_configs.KEY_WORDS


# The script that compiles them at their own size.


@pytest.mark.parametrize("name", ON_PODS)
def test_the_chips_of_a_docstring_are_those_of_table_1_and_split_every_batch(name):
    chips = compile_configs.chips_of(ON_PODS[name])
    published = {row.config: row.chips for row in recipes.TABLE_1}
    assert chips == published.get(name, chips)
    config = load_config(str(ON_PODS[name]), [])
    check_devices(config, recipes.CORES_PER_CHIP * chips)


def test_a_docstring_without_chips_or_with_two_numbers_of_them_is_refused(tmp_path):
    for number, text in enumerate(("some machine", "2 TPU v3 chips, or 4 TPU v3\n    chips")):
        path = tmp_path / f"{number}.py"
        path.write_text(f'"""Hardware: {text}."""\n', encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"{number}\.py: the docstring names.*expected one"):
            compile_configs.chips_of(path)


def test_configs_are_chosen_by_name_and_all_of_them_without():
    assert compile_configs.chosen(None) == tuple(ON_PODS)
    assert set(FILES) - set(ON_PODS) == {"demo", "bert_mini_wikibooks_cpu"}
    with pytest.raises(SystemExit, match="--only=large: expected one of bert_base_32k, "):
        compile_configs.chosen(["large"])


def _exchange(kind: str, dtype: str, size: int) -> Exchange:
    return Exchange(kind, ("fsdp",), (dtype,), size, 1, False, False, None, ())


def _reading(exchanges: Sequence[Exchange], random_bytes: int = 1) -> StepReading:
    return StepReading(
        Memory(0, 0, 0, 0, 0), {}, 0, random_bytes, 0, None, tuple(exchanges), (), 0, 0.0
    )


def _lowered(draw: Callable[[jax.Array], jax.Array]) -> str:
    return jax.jit(draw).lower(jax.random.key(0)).as_text()


def test_the_script_names_what_a_step_must_not_have():
    config = load_config(str(ON_PODS["bert_large_32k"]), [])
    narrow = [_exchange("all-gather", "bf16", 2**24), _exchange("all-reduce", "f32", 2**10)]
    keys = _lowered(lambda key: jax.random.key_data(jax.random.fold_in(key, 7)))
    assert 0 < compile_configs.threefry_words(keys) <= 4
    assert compile_configs.step_faults(config, _reading(narrow), keys) == []
    wide = [_exchange(kind, "f32", 2**21) for kind in ("all-gather", "reduce-scatter")]
    bits = _lowered(lambda key: jax.random.bits(key, (4, 512)))
    assert compile_configs.step_faults(config, _reading(wide + narrow * 15, 0), bits) == [
        "32 collectives, at most 30 expected",
        "all-gather of 2.0 MiB over fsdp in f32",
        "reduce-scatter of 2.0 MiB over fsdp in f32",
        "2,048 random words at once by threefry, rbg asked for",
        "no random bits from the hardware, rbg asked for",
    ]
    asked = dataclasses.replace(config.parallel, reduce_dtype="float32")
    wide_asked = dataclasses.replace(config, parallel=asked)
    assert compile_configs.step_faults(wide_asked, _reading(wide), keys) == [
        "all-gather of 2.0 MiB over fsdp in f32"
    ]
