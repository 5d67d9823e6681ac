"""What a configuration will do, and what that takes on a named topology."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax

from bert_lamb import model
from bert_lamb.config import ConfigError, PhaseConfig, PretrainConfig
from bert_lamb.data.errors import DataError
from bert_lamb.data.records.manifest import Manifest, read_manifest
from bert_lamb.parallel.mesh import make_mesh, row_devices
from bert_lamb.planning.chips import chip_of
from bert_lamb.planning.fitting import Fit, Workshop, fit_phase
from bert_lamb.planning.predict import Assumptions
from bert_lamb.planning.reading import usable_bytes
from bert_lamb.planning.topology import topology_devices
from bert_lamb.training.phases import LearningRates, learning_rates
from bert_lamb.training.preflight import check_devices

# Of Google's uncased English BERT, where neither the config nor its records name another size.
USUAL_VOCABULARY = 30_522


@dataclass(frozen=True)
class PhasePlan:
    """One phase.

    Attributes:
        seq_length: tokens per row.
        global_batch: rows per update.
        steps: updates.
        predictions: masked positions per row.
        tokens: of all rows, padding included.
        epochs: passes over the records; None where they cannot be read.
        rates: the learning rate at the first, the highest and the last update.
        model_flops: of one step on all devices, forward and backward, nothing recomputed.
        fit: on the topology; None without one.
        seconds: of a step; None if no time is predicted.
        minutes: of the phase.
        peak_share: part of the devices' peak that the model's operations take; None as above.
        host_rows: rows that each host has to deliver in a second.
    """

    seq_length: int
    global_batch: int
    steps: int
    predictions: int
    tokens: int
    epochs: float | None
    rates: LearningRates
    model_flops: int
    fit: Fit | None = None
    seconds: float | None = None
    minutes: float | None = None
    peak_share: float | None = None
    host_rows: float | None = None


@dataclass(frozen=True)
class Machine:
    """A topology and the mesh of a run on it.

    Attributes:
        topology: its name, such as "v3:32x32".
        device_kind: as JAX calls a device.
        chips: in all.
        devices: in all.
        hosts: in all.
        mesh: devices along each axis.
        peak_flops: dense bf16 FLOP/s of a device; None if unknown.
        source: of the numbers about its links.
    """

    topology: str
    device_kind: str
    chips: int
    devices: int
    hosts: int
    mesh: dict[str, int]
    peak_flops: float | None
    source: str


@dataclass(frozen=True)
class Plan:
    """A run, planned.

    Attributes:
        parameters: trainable numbers.
        vocabulary: its size.
        vocabulary_source: where the size comes from.
        phases: of the run.
        machine: None for a plan without topology.
        quick: whether figures were drawn from programs of few layers.
        minutes: of all phases; None if no time is predicted for one of them.
        chip_hours: the same in hours of one chip.
        cost: of the run at a price per chip-hour; None without one.
    """

    parameters: int
    vocabulary: int
    vocabulary_source: str
    phases: tuple[PhasePlan, ...]
    machine: Machine | None = None
    quick: bool = False
    minutes: float | None = None
    chip_hours: float | None = None
    cost: float | None = None

    @property
    def fits(self) -> bool:
        """Whether every phase fits into the devices' memory; a plan without topology does."""
        return all(phase.fit is None or phase.fit.fits for phase in self.phases)


@dataclass(frozen=True)
class Request:
    """What is asked of a plan besides the configuration.

    Attributes:
        assumptions: of the prediction.
        price: of a chip-hour; None for no cost.
        folder: for readings of compiled steps; None keeps none.
        quick: whether to compile few layers only and extrapolate.
        say: takes a line about what is being done.
    """

    assumptions: Assumptions = dataclasses.field(default_factory=Assumptions)
    price: float | None = None
    folder: Path | None = None
    quick: bool = False
    say: Callable[[str], None] = lambda line: None


def resolve_vocabulary(
    config: PretrainConfig, given: int | None = None
) -> tuple[PretrainConfig, str]:
    """Fills in the size of the vocabulary.

    Args:
        config: of the run.
        given: size to take where the configuration leaves it to the records.

    Returns:
        The configuration, and where the size comes from.

    Raises:
        ConfigError: if the size given is not that of the configuration or the records.
    """
    known = {folder: manifest.vocab_size for folder, manifest in _manifests(config).items()}
    if config.model.vocab_size:
        size, source = config.model.vocab_size, "the config"
    elif known:
        folder, size = next(iter(known.items()))
        source = f"the records {folder}"
    elif given is not None:
        size, source = given, "--vocab-size"
    else:
        size, source = (
            USUAL_VOCABULARY,
            ("assumed, that of Google's uncased BERT; name yours with --vocab-size"),
        )
    if given is not None and given != size:
        raise ConfigError(f"--vocab-size={given}: expected {size}, the size in {source}")
    model_config = dataclasses.replace(config.model, vocab_size=size)
    return dataclasses.replace(config, model=model_config), source


def plan_run(config: PretrainConfig, source: str) -> Plan:
    """Plans what needs no machine.

    Args:
        config: of the run, with the vocabulary's size filled in.
        source: where that comes from.
    """
    manifests = _manifests(config)
    phases = tuple(_phase(config, phase, manifests.get(phase.records)) for phase in config.phases)
    parameters = model.count_params(config.model)
    return Plan(parameters, config.model.vocab_size, source, phases)


def plan_on(config: PretrainConfig, source: str, topology: str, request: Request) -> Plan:
    """Plans a run on a topology, none of whose devices need be here.

    Args:
        config: of the run, with the vocabulary's size filled in.
        source: where that comes from.
        topology: as `topology_devices` takes it.
        request: what else is asked.

    Raises:
        ConfigError: if the configuration does not fit so many devices.
        ValueError: if there is no such topology.
        ModuleNotFoundError: if the TPU compiler is not installed.
    """
    plan = plan_run(config, source)
    devices = topology_devices(topology)
    workshop = workshop_on(config, devices, request)
    mesh, chip = workshop.mesh, workshop.chip
    machine = Machine(
        topology=topology,
        device_kind=chip.device_kind,
        chips=len(devices) // chip.devices_per_chip,
        devices=len(devices),
        hosts=len({device.process_index for device in devices}),
        mesh=dict(mesh.shape),
        peak_flops=chip.peak_flops,
        source=chip.source,
    )
    phases = tuple(
        _on_machine(phase, fit_phase(config, index, workshop), machine)
        for index, phase in enumerate(plan.phases)
    )
    plan = dataclasses.replace(plan, phases=phases, machine=machine, quick=request.quick)
    return _priced(plan, machine, request.price)


def workshop_on(
    config: PretrainConfig, devices: Sequence[jax.Device], request: Request
) -> Workshop:
    """Returns what compiling the phases of a run for `devices` takes.

    Raises:
        ConfigError: if the configuration does not fit so many devices.
    """
    mesh = make_mesh(config.parallel, devices)
    check_devices(config, row_devices(mesh))
    return Workshop(
        mesh, chip_of(devices[0]), usable_bytes(devices[0]), request.assumptions, request.folder,
        request.quick, request.say,
    )  # fmt: skip


def _phase(config: PretrainConfig, phase: PhaseConfig, manifest: Manifest | None) -> PhasePlan:
    rows = phase.steps * phase.global_batch
    a_row = model.flops_per_row(config.model, phase.seq_length, phase.max_predictions)
    return PhasePlan(
        seq_length=phase.seq_length,
        global_batch=phase.global_batch,
        steps=phase.steps,
        predictions=phase.max_predictions,
        tokens=rows * phase.seq_length,
        epochs=rows / manifest.num_examples if manifest and manifest.num_examples else None,
        rates=learning_rates(phase),
        model_flops=phase.global_batch * a_row,
    )


def _on_machine(phase: PhasePlan, fit: Fit, machine: Machine) -> PhasePlan:
    seconds = fit.figures.prediction.seconds if fit.fits and fit.figures else None
    if seconds is None:
        return dataclasses.replace(phase, fit=fit)
    share = None
    if machine.peak_flops is not None:
        share = phase.model_flops / (seconds * machine.devices * machine.peak_flops)
    return dataclasses.replace(
        phase,
        fit=fit,
        seconds=seconds,
        minutes=seconds * phase.steps / 60,
        peak_share=share,
        host_rows=phase.global_batch / machine.hosts / seconds,
    )


def _priced(plan: Plan, machine: Machine, price: float | None) -> Plan:
    minutes = [phase.minutes for phase in plan.phases if phase.minutes is not None]
    if len(minutes) < len(plan.phases):
        return plan
    chip_hours = sum(minutes) / 60 * machine.chips
    return dataclasses.replace(
        plan,
        minutes=sum(minutes),
        chip_hours=chip_hours,
        cost=None if price is None else price * chip_hours,
    )


def _manifests(config: PretrainConfig) -> dict[str, Manifest]:
    """Reads the manifests of records that are at hand; a plan does without the others."""
    found = {}
    for phase in config.phases:
        if phase.records:
            try:
                found[phase.records] = read_manifest(phase.records)
            except (DataError, OSError):
                continue
    return found
