"""Transitions of different kinds that began together, none of them known to cause the other."""

from __future__ import annotations

from dataclasses import dataclass

from .links import Links
from .meaning import in_words
from .rules import PROPAGATION
from .transitions import Transition

__all__ = ["Coupling", "couplings_in"]


@dataclass(frozen=True, slots=True)
class Coupling:
    """Two transitions that began together.

    Attributes:
        one: the earlier one.
        other: the other one.
        distance_steps: steps between their beginnings.
    """

    one: Transition
    other: Transition
    distance_steps: int

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "one": self.one.to_dict(),
            "other": self.other.to_dict(),
            "distance_steps": self.distance_steps,
        }

    def __str__(self) -> str:
        return " and ".join(
            f"{in_words(found.failure)}{found.place} ({found.found_by})"
            for found in (self.one, self.other)
        )


def couplings_in(links: Links, window: int) -> tuple[Coupling, ...]:
    """Return the pairs that began within ``window`` steps and have no common root.

    What the ranges of single layers show is left out: it is one incident.
    """
    root_of = {place: root for root in links.roots for place in links.family(root)}
    shown = [
        (place, transition)
        for place, transition in enumerate(links.transitions)
        if transition.rule != PROPAGATION.id
    ]
    found = []
    for number, (place, one) in enumerate(shown):
        for later, other in shown[number + 1 :]:
            distance = abs(one.first_step - other.first_step)
            if one.kind != other.kind and distance <= window and root_of[place] != root_of[later]:
                first, second = sorted((one, other), key=lambda found: found.first_step)
                found.append(Coupling(first, second, distance))
    return tuple(found)
