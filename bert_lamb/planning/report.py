"""A plan as text for people and as plain values for programs."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bert_lamb.planning import torus
from bert_lamb.planning.plan import PhasePlan, Plan
from bert_lamb.planning.predict import RANDOM_RATE, Assumptions, Prediction

UNKNOWN = "n/a"
_GIB = 2**30


def plan_text(plan: Plan, assumptions: Assumptions) -> str:
    """Lays a plan out as text: a column for each phase, then what they exchange."""
    phases = plan.phases
    rows = [("", *(f"phase {i}" for i in range(1, len(phases) + 1)))]
    rows += [(name, *map(cell, phases)) for name, cell in _BASIC]
    lines = [f"{plan.parameters:,} parameters, vocabulary {plan.vocabulary:,} "
             f"({plan.vocabulary_source})"]  # fmt: skip
    machine = plan.machine
    if machine is not None:
        mesh = " x ".join(f"{axis} {size}" for axis, size in machine.mesh.items() if size > 1)
        lines.append(
            f"{machine.topology}: {machine.chips:,} chips, {machine.devices:,} devices "
            f"({machine.device_kind}), hosts {machine.hosts:,}; mesh {mesh or 'one device'}"
        )
        if plan.quick:
            lines.append("figures drawn on a line through programs of few layers (--quick)")
        rows += [(name, *map(cell, phases)) for name, cell in _ON_MACHINE]
        rows += _time_rows(phases)
    lines += ["", *aligned(rows)]
    for number, phase in enumerate(phases, 1):
        lines += _largest_line(number, phase) + _exchange_lines(number, phase)
    if machine is not None:
        lines += ["", *_whole(plan)]
        if any(phase.fit and phase.fit.figures for phase in phases):
            lines += _basis_lines(plan, assumptions)
    return "\n".join(lines)


def sweep_text(rows: Sequence[tuple[Sequence[str], Plan | str]], names: Sequence[str]) -> str:
    """Lays plans out as one table, a line for each.

    Args:
        rows: what is set, and the plan or why there is none.
        names: of what is set.
    """
    header = (
        *names,
        "phase",
        "rows",
        "GiB",
        "of",
        "ms a step",
        "peak",
        "minutes",
        "in all",
        "cost",
    )
    table: list[tuple[str, ...]] = [header]
    for settings, plan in rows:
        if isinstance(plan, str):
            table.append((*settings, plan))
            continue
        for number, phase in enumerate(plan.phases, 1):
            whole = (_number(plan.minutes, ",.1f"), _number(plan.cost, ",.0f"))
            first = number == 1
            table.append(
                (
                    *(settings if first else [""] * len(settings)), str(number),
                    *_sweep_cells(phase), *(whole if first else ("", "")),
                )
            )  # fmt: skip
    return "\n".join(aligned(table, left=len(names)))


def plan_values(plan: Plan, assumptions: Assumptions) -> dict[str, Any]:
    """Returns all of a plan as plain values, for JSON; bytes and seconds, nothing rounded."""
    values = dataclasses.asdict(plan)
    for phase, plain in zip(plan.phases, values["phases"], strict=True):
        fit = phase.fit
        if fit is None:
            continue
        plain["fit"]["fits"] = fit.fits
        if fit.figures is not None:
            prediction = fit.figures.prediction
            plain["fit"]["figures"]["memory"]["peak"] = fit.figures.memory.peak
            plain["fit"]["figures"]["prediction"] |= {
                "communication": prediction.communication,
                "exposed": prediction.exposed,
                "hidden": prediction.hidden,
                "estimate": prediction.estimate,
                "seconds": prediction.seconds,
            }
    values["fits"] = plan.fits
    values["assumptions"] = {
        **dataclasses.asdict(assumptions),
        "random_bytes_per_second": RANDOM_RATE,
        "link_efficiency": torus.EFFICIENCY,
        "latency_seconds": torus.LATENCY,
        "latency_from_bytes": torus.LARGE,
    }
    return values


def aligned(rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Puts cells under each other; the first `left` columns to the left, the others right."""
    rows = [tuple(row) for row in rows]
    columns = max(map(len, rows))
    widths = [
        max((len(row[i]) for row in rows if len(row) == columns), default=0) for i in range(columns)
    ]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left or len(row) < columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return UNKNOWN if value is None or math.isnan(value) else format(value * scale, form)


def _gib(count: int | None) -> str:
    return _number(count, ".2f", 1 / _GIB)


def _memory(name: str) -> Callable[[PhasePlan], str]:
    def cell(phase: PhasePlan) -> str:
        figures = phase.fit.figures if phase.fit else None
        return _gib(getattr(figures.memory, name) if figures else None)

    return cell


def _figure(cell: Callable[[PhasePlan], str]) -> Callable[[PhasePlan], str]:
    return lambda phase: cell(phase) if phase.fit and phase.fit.figures else UNKNOWN


def _rows(phase: PhasePlan) -> str:
    fit = phase.fit
    if fit is None:
        return UNKNOWN
    return f"{fit.rows:,} = {fit.micro_batches:,} x {fit.pass_rows:,}"


_BASIC: tuple[tuple[str, Callable[[PhasePlan], str]], ...] = (
    ("batch, rows x tokens", lambda p: f"{p.global_batch:,} x {p.seq_length}"),
    ("predictions a row", lambda p: f"{p.predictions}"),
    ("steps", lambda p: f"{p.steps:,}"),
    ("tokens", lambda p: f"{p.tokens:.4g}"),
    ("epochs of the records", lambda p: _number(p.epochs, ".2f")),
    ("learning rate, first step", lambda p: f"{p.rates.first:.3g}"),
    ("learning rate, peak", lambda p: f"{p.rates.peak:.3g}"),
    ("learning rate, last step", lambda p: f"{p.rates.last:.3g}"),
    ("model FLOPs a step", lambda p: f"{p.model_flops:.4g}"),
)
_ON_MACHINE: tuple[tuple[str, Callable[[PhasePlan], str]], ...] = (
    ("rows a device, passes x rows", _rows),
    ("GiB a device: arguments", _memory("arguments")),
    ("  outputs beside arguments", _figure(lambda p: _gib(_new_outputs(p)))),
    ("  temporaries", _memory("temporaries")),
    ("  program", _memory("code")),
    ("  needed", lambda p: _gib(p.fit.needed if p.fit else None)),
    ("  usable", lambda p: _gib(p.fit.capacity if p.fit else None)),
    ("  fits", lambda p: "yes" if p.fit and p.fit.fits else "NO"),
    ("compiled FLOPs a device", _figure(lambda p: f"{_flops(p):.4g}")),
    ("compile, s", _figure(lambda p: f"{_compile_seconds(p):.0f}")),
)


def _new_outputs(phase: PhasePlan) -> int:
    assert phase.fit is not None
    assert phase.fit.figures is not None
    return phase.fit.figures.memory.outputs - phase.fit.figures.memory.aliased


def _flops(phase: PhasePlan) -> int:
    assert phase.fit is not None
    assert phase.fit.figures is not None
    return phase.fit.figures.flops


def _compile_seconds(phase: PhasePlan) -> float:
    assert phase.fit is not None
    assert phase.fit.figures is not None
    return phase.fit.figures.compile_seconds


def _prediction(phase: PhasePlan) -> Prediction | None:
    return phase.fit.figures.prediction if phase.fit and phase.fit.figures else None


def _time_rows(phases: Sequence[PhasePlan]) -> list[tuple[str, ...]]:
    predictions = [_prediction(phase) for phase in phases]
    names = list(dict.fromkeys(n for p in predictions if p for n in p.computing))

    def row(name: str, value: Callable[[Prediction], float | None]) -> tuple[str, ...]:
        cells = (None if p is None else value(p) for p in predictions)
        return (name, *(_number(cell, ",.2f", 1e3) for cell in cells))

    rows = [row(f"  {n}", lambda p, n=n: p.computing.get(n)) for n in names]  # type: ignore[misc]
    rows = [("ms a step:", *[""] * len(phases)), *rows] if names else []
    return [
        *rows,
        row("  communication, exposed", lambda p: p.exposed),
        row("  (communication, hidden)", lambda p: p.hidden),
        row("  (dearer branches, if taken)", lambda p: p.branches),
        row("  estimate", lambda p: p.estimate),
        ("  times kappa", *(_number(p.kappa if p else None, ".2f") for p in predictions)),
        ("ms a step, predicted", *(_number(p.seconds, ",.1f", 1e3) for p in phases)),
        ("share of peak", *(_number(p.peak_share, ".1%") for p in phases)),
        ("rows/s each host delivers", *(_number(p.host_rows, ",.0f") for p in phases)),
        ("minutes", *(_number(p.minutes, ",.2f") for p in phases)),
    ]


def _largest_line(number: int, phase: PhasePlan) -> list[str]:
    fit = phase.fit
    if fit is None or fit.fits:
        return []
    start = f"phase {number} does not fit: {_gib(fit.needed)} GiB of {_gib(fit.capacity)}"
    if fit.largest_rows is None:
        return ["", f"{start}, and not one row a pass does; cut the model (parallel.fsdp, "
                "parallel.tensor) or recompute (model.remat)"]  # fmt: skip
    return ["", f"{start}; the most rows of a pass that fit are {fit.largest_rows} "
            f"(--config.phases[{number - 1}].max_rows_per_device={fit.largest_rows})"]  # fmt: skip


def _exchange_lines(number: int, phase: PhasePlan) -> list[str]:
    prediction = _prediction(phase)
    if prediction is None:
        return []
    header = ("collective", "over", "type", "where", "chips", "count", "runs", "MiB", "ms",
              "hidden")  # fmt: skip
    rows = [
        (
            t.kind, t.over, t.dtypes, t.where, t.span, f"{t.count:,}", f"{t.runs:,}",
            f"{t.bytes / 2**20:,.2f}", _number(t.seconds, ",.2f", 1e3),
            _number(t.hidden, ",.2f", 1e3),
        )
        for t in prediction.transfers.values()
    ]  # fmt: skip
    if not rows:
        return ["", f"phase {number} sends nothing"]
    return ["", f"what a step of phase {number} sends", *aligned([header, *rows], left=5)]


def _whole(plan: Plan) -> list[str]:
    if plan.minutes is None:
        return ["no time predicted: see docs/scaling.md"] if plan.fits else []
    cost = "" if plan.cost is None else f", cost {plan.cost:,.2f}"
    return [f"in all {plan.minutes:,.1f} minutes, {plan.chip_hours:,.1f} chip-hours{cost}"]


def _basis_lines(plan: Plan, assumptions: Assumptions) -> list[str]:
    prediction = next(p for p in map(_prediction, plan.phases) if p)
    if not prediction.basis:
        return ["the compiler's cycles are not to be trusted on this generation; state a share of "
                "the peak with --utilization for a time"]  # fmt: skip
    low, high = prediction.band
    lines = [f"predicted, not measured: {prediction.basis}, torus model, docs/scaling.md"]
    if plan.minutes is not None and low < high:
        before = plan.minutes / assumptions.kappa
        lines.append(f"minutes before kappa {before:,.1f}; with its band of {low} to {high}: "
                     f"{before * low:,.1f} to {before * high:,.1f}")  # fmt: skip
    return lines


def _sweep_cells(phase: PhasePlan) -> tuple[str, ...]:
    fit = phase.fit
    if fit is None:
        return (UNKNOWN,) * 6
    if not fit.fits:
        most = "no rows fit" if fit.largest_rows is None else f"{fit.largest_rows} rows fit"
        return (_rows(phase), _gib(fit.needed), _gib(fit.capacity), "too large", most, UNKNOWN)
    return (
        _rows(phase), _gib(fit.needed), _gib(fit.capacity), _number(phase.seconds, ",.1f", 1e3),
        _number(phase.peak_share, ".1%"), _number(phase.minutes, ",.2f"),
    )  # fmt: skip
