"""A picture of where the time of a step goes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_lamb.planning.parts import PARTS
from bert_lamb.planning.plan import PhasePlan, Plan
from bert_lamb.planning.predict import COMPUTATION

EXPOSED, BEYOND = "communication, exposed", "beyond the estimates (kappa)"
_BAR_INCHES = 0.45
_GREYS = {EXPOSED: "0.35", BEYOND: "0.8"}  # what is not computing


def bars(plans: Sequence[tuple[str, Plan]]) -> list[tuple[str, dict[str, float]]]:
    """Returns a label and milliseconds by part for each phase whose time is predicted.

    Args:
        plans: each with what tells it from the others.
    """
    found = []
    for name, plan in plans:
        for number, phase in enumerate(plan.phases, 1):
            parts = _parts(phase)
            if parts:
                found.append((f"{name}, phase {number}", parts))
    return found


def draw(plans: Sequence[tuple[str, Plan]], path: str) -> None:
    """Draws one stacked bar for each phase of each plan.

    Args:
        plans: each with what tells it from the others.
        path: of the picture; its suffix says the format.

    Raises:
        ValueError: if no phase has a predicted time.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = bars(plans)
    if not found:
        raise ValueError("no phase has a predicted time to draw")
    figure: Any = Figure(figsize=(9, 2.0 + _BAR_INCHES * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = [label for label, _ in found]
    left = [0.0] * len(found)
    for part in (*PARTS, COMPUTATION, EXPOSED, BEYOND):
        widths = [parts.get(part, 0.0) for _, parts in found]
        if any(widths):
            axes.barh(labels, widths, left=left, label=part, color=_GREYS.get(part))
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of a step, predicted")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(Path(path), dpi=150)


def _parts(phase: PhasePlan) -> dict[str, float]:
    prediction = phase.fit.figures.prediction if phase.fit and phase.fit.figures else None
    if prediction is None or prediction.estimate is None or prediction.exposed is None:
        return {}
    parts = {name: seconds * 1e3 for name, seconds in prediction.computing.items()}
    parts[EXPOSED] = prediction.exposed * 1e3
    parts[BEYOND] = prediction.estimate * (prediction.kappa - 1) * 1e3
    return parts
