"""How a change of scale, a zero or a NaN went through the layers of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from nabla_core.severity import Severity

from .frames import OUTPUTS, Frames
from .meaning import Stage
from .onsets import Onset, onsets
from .rules import PROPAGATION
from .transitions import Transition

__all__ = ["Propagation", "propagation_of"]

_OF_ITSELF, _MUCH = 1.0, 3.0
_CLEAR_OCTAVES, _WEAK = 5.0, 0.6
_FEWEST = 3
_EARLIER, _SAME_PACE, _RISEN = 0.4, 0.33, 0.5
_SHARE = 0.2

_FAILURE = {
    ("outputs", "exploding"): ("activation_regime", "exploding_activations"),
    ("outputs", "shrinking"): ("activation_regime", "shrinking_activations"),
    ("outputs", "zero"): ("activation_regime", "dead_neurons"),
    ("outputs", "non-finite"): ("activation_regime", "non_finite"),
    ("gradients", "exploding"): ("gradient_health", "exploding_gradients"),
    ("gradients", "shrinking"): ("gradient_health", "vanishing_gradients"),
    ("gradients", "zero"): ("gradient_health", "vanishing_gradients"),
    ("gradients", "non-finite"): ("gradient_health", "non_finite"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagation:
    """What the ranges of the layers show of one incident.

    Attributes:
        layout: names of the layers, in the order in which they run.
        onsets: when each layer left its scale, in causal order.
        spread: whether many layers changed at once, each of itself: the step before changed them.
        rising_since: first step of a rise of the origin that took several steps, which no batch
            and no write does; ``None`` where it came at once.
    """

    layout: tuple[str, ...]
    onsets: tuple[Onset, ...]
    spread: bool
    rising_since: int | None = None

    @property
    def by_steps(self) -> bool:
        """Whether steps of the optimizer did it, and no layer of itself."""
        return self.spread or self.rising_since is not None

    @property
    def origin(self) -> str:
        """Where it began: a layer, or what is computed between two layers and not seen."""
        first = self.onsets[0]
        layer, before = self.layout[first.layer], self.before
        if before < 0:
            return f"{layer} or in what it was given"
        if before >= len(self.layout):
            return f"{layer} or in the loss behind it"
        if not self.layout[before]:
            return f"{layer} or right before it"
        between = (self.layout[before], layer)
        one, other = between if first.quantity == OUTPUTS else between[::-1]
        return f"{layer}, or between {one} and {other}"

    @property
    def before(self) -> int:
        """Place of what the origin got its values from; outside of the layout if nothing did."""
        first = self.onsets[0]
        return first.layer - 1 if first.quantity == OUTPUTS else first.layer + 1

    def transitions(self) -> list[Transition]:
        """Return one transition for each layer that changed, the origin first."""
        last = max((onset.step for onset in self.onsets), default=0)
        found = [self._transition(onset, last) for onset in self.onsets]
        if found and not self.by_steps:
            found[0] = replace(found[0], near=self.origin)
        if self.by_steps:
            found.insert(0, self._by_the_step(last))
        return found

    # ------------------------------------------------------------------ private
    def _transition(self, onset: Onset, last: int) -> Transition:
        kind, failure = _FAILURE[onset.quantity, onset.state]
        forward = onset.quantity == OUTPUTS
        given = forward and not onset.layer  # by the data, which no step moves
        return Transition(
            kind=kind,
            failure=failure,
            from_state="normal",
            to_state="dead" if onset.state == "zero" and forward else onset.state,
            layer=self.layout[onset.layer],
            first_step=onset.step,
            last_step=last,
            stage=Stage.FORWARD if forward else Stage.BACKWARD,
            confidence=0.9 if given or abs(onset.octaves) >= _CLEAR_OCTAVES else _WEAK,
            severity=Severity.INFO,
            rule=PROPAGATION.id,
            text=self._text(onset),
        )

    def _by_the_step(self, last: int) -> Transition:
        first = self.onsets[0]
        began = first.step if self.rising_since is None else self.rising_since
        return Transition(
            kind="optimizer_stability",
            failure="step_too_large",
            from_state="normal",
            to_state="too-large",
            layer="",
            first_step=max(0, began - 1),
            last_step=last,
            stage=Stage.OPTIMIZER,
            confidence=0.8,
            severity=Severity.INFO,
            rule=PROPAGATION.id,
            text=self._step_text(first),
        )

    def _step_text(self, first: Onset) -> str:
        if self.rising_since is not None:
            return (
                f"The outputs of {self.layout[first.layer]} rose from {first.before:.3g} to "
                f"{first.after:.3g} in steps {self.rising_since} to {first.step}, not at once: "
                "steps of the optimizer did it, no single batch and no write."
            )
        changed = len({onset.layer for onset in self.onsets if onset.step == first.step})
        return (
            f"{changed} of {len(self.layout)} layers changed their scale in step "
            f"{first.step}, each of itself: the optimizer step before it changed all weights."
        )

    def _text(self, onset: Onset) -> str:
        what = f"the {onset.quantity} of {self.layout[onset.layer]}"
        if onset.state == "non-finite":
            return f"In step {onset.step} {what} are not finite."
        if onset.state == "zero":
            since = f", usually up to {onset.before:.3g}" if onset.before else " from the start"
            return f"From step {onset.step} on {what} are exactly zero{since}."
        times = f"{2.0 ** abs(onset.octaves):.3g} times"
        word = "larger" if onset.octaves > 0 else "smaller"
        return (
            f"In step {onset.step} {what} reach {onset.after:.3g}, {times} {word} than usual "
            f"({onset.before:.3g}; limit 8 times up, 64 times down)."
        )


def propagation_of(frames: Frames) -> Propagation | None:
    """Return how a change went through the layers, or ``None`` when no layer changed.

    Args:
        frames: the steps up to the incident.
    """
    found = tuple(onsets(frames))
    if not found:
        return None
    spread = _is_spread(found, frames)
    since = None if spread else _rising_since(found[0], frames)
    return Propagation(layout=frames.layout, onsets=found, spread=spread, rising_since=since)


def _rising_since(first: Onset, frames: Frames) -> int | None:
    """Since which step the outputs of the origin rose, if they did not jump.

    Two fifths of the rise have to be there the step before, and that step or the one before it has
    to have risen by a third of what the last one did: a layer that drifts and then jumps did jump.
    """
    if first.quantity != OUTPUTS or not 0.0 < first.octaves < math.inf:
        return None
    history = [one for one in frames.history(OUTPUTS, first.layer) if one[0] <= first.step]
    octaves = [math.log2(value / first.before) if value > 0.0 else 0.0 for _, value in history]
    if len(octaves) < _FEWEST + 1 or octaves[-2] < _EARLIER * first.octaves:
        return None
    rises = [later - earlier for earlier, later in pairwise(octaves[-_FEWEST - 1 :])]
    if max(rises[:-1]) < _SAME_PACE * rises[-1]:
        return None
    place = len(octaves) - 1
    while place > 0 and octaves[place - 1] >= _RISEN:
        place -= 1
    return history[place][0]


def _is_spread(found: Sequence[Onset], frames: Frames) -> bool:
    """Whether many layers changed of themselves in the first step, and not only the first one.

    A layer that passes a change on changes as much as the one that ran before it.
    """
    first = found[0]
    changes = {
        onset.layer: abs(onset.octaves)
        for onset in found
        if (onset.quantity, onset.step) == (OUTPUTS, first.step) and math.isfinite(onset.octaves)
    }
    if first.layer not in changes:
        return False
    own = [octaves - changes.get(layer - 1, 0.0) for layer, octaves in changes.items()]
    some = sum(octaves > _OF_ITSELF for octaves in own)
    many = some > max(_FEWEST, _SHARE * len(frames.layout))
    return many or sum(octaves > _MUCH for octaves in own) >= _FEWEST
