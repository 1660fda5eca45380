"""AUD203: layers that are made anew in each step."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import LoopFacts

from .rules.wiring import PARAMETER_UNREGISTERED
from .streak import CONSECUTIVE
from .watches.inner_layers import InnerLayer, InnerLayerWatch

__all__ = ["InnerLayerDetector"]


class InnerLayerDetector:
    """Judges each line that makes such layers once."""

    rules = (PARAMETER_UNREGISTERED,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(InnerLayerWatch)
        self._told: set[int] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what was made for three steps in a row."""
        found = []
        for layer in self._watch.layers.values():
            if layer.steps >= CONSECUTIVE and id(layer) not in self._told:
                self._told.add(id(layer))
                found.append(_issue(layer, record.step))
        return found


def _issue(layer: InnerLayer, step: int) -> Issue:
    return PARAMETER_UNREGISTERED.issue(
        f"A new {layer.module} with random parameters of shape {layer.shape} is made at "
        f"{layer.place} for each of {CONSECUTIVE} steps in a row (limit 0); the loss goes through "
        "it, and it is part of no module and no optimizer: it never learns.",
        step=step,
        where=layer.place.location(),
        phase="forward",
        steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        layer=layer.module,
    )
