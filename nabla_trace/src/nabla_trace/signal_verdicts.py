"""GEO50x: does the signal survive its way through the layers?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.rule import Rule

from .live.ladder import Rung
from .options import TraceOptions
from .rules.signal import SIGNAL_EXPLODING, SIGNAL_RANK_COLLAPSE, SIGNAL_VANISHING

__all__ = ["signal_issues"]

_FEWEST = 4
_ALIKE = 0.995
_DIFFERENT = 0.9


def signal_issues(rungs: Sequence[Rung], step: int, options: TraceOptions) -> Iterator[Issue]:
    """Yield vanishing, exploding and collapsing signals.

    The last layer is left out: its scale is that of the task. The limit for the whole ladder is
    that of four blocks, each of which changes the scale by ``options.signal_gain``.

    Args:
        rungs: layers in the order of the calls.
        step: when.
        options: limits.
    """
    inner = list(rungs[:-1])
    if len(inner) < _FEWEST:
        return
    limit = options.signal_gain**4
    forward = [rung.forward for rung in inner]
    backward = [rung.backward for rung in reversed(inner) if math.isfinite(rung.backward)]
    for label, values in (("Activations", forward), ("Gradients", backward)):
        gain = _gain(values)
        if gain is None or 1 / limit <= gain <= limit:
            continue
        rule = SIGNAL_EXPLODING if gain > 1 else SIGNAL_VANISHING
        yield _issue(rule, (label, inner, gain, limit), step)
    first, last = inner[0].likeness, inner[-1].likeness
    if last > _ALIKE and first < _DIFFERENT:
        yield SIGNAL_RANK_COLLAPSE.issue(
            f"Outputs of different samples have the mean cosine {last:.4f} at {inner[-1].name}, "
            f"limit {_ALIKE}; at {inner[0].name} it is {first:.2f}.",
            step=step,
            where=Location(module=inner[-1].name),
            phase="forward",
            likeness=Quantity(value=last, limit=_ALIKE),
        )


def _gain(values: Sequence[float]) -> float | None:
    """Return the change over the ladder; ``None`` when too little is known."""
    if len(values) < _FEWEST or not all(map(math.isfinite, values)) or values[0] <= 0:
        return None
    return values[-1] / values[0]


def _issue(rule: Rule, found: tuple[str, list[Rung], float, float], step: int) -> Issue:
    label, inner, gain, limit = found
    backwards = label == "Gradients"
    start, end = (inner[-1], inner[0]) if backwards else (inner[0], inner[-1])
    bound = limit if gain > 1 else 1 / limit
    return rule.issue(
        f"{label} change by a factor of {gain:.2g} from {start.name} to {end.name} over "
        f"{len(inner)} layers, limit {bound:.2g}.",
        step=step,
        where=Location(module=end.name),
        phase="backward" if backwards else "forward",
        gain=Quantity(value=gain, limit=bound),
    )
