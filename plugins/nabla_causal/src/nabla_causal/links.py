"""Which transition followed from which: one parent each, in an order without circles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .meaning import position_of
from .mechanisms import Depth, mechanism
from .transitions import Transition

__all__ = ["Link", "Links", "link"]

_TOGETHER_STEPS = 15


@dataclass(frozen=True, slots=True)
class Link:
    """One transition led to another.

    Attributes:
        cause: place of the one in the causal order.
        effect: place of the other.
        why: the mechanism.
    """

    cause: int
    effect: int
    why: str


@dataclass(frozen=True, slots=True)
class Links:
    """Transitions in causal order, and what led to each.

    Attributes:
        transitions: causes before consequences.
        parents: the link to each transition that followed from another one, by its place.
    """

    transitions: tuple[Transition, ...]
    parents: Mapping[int, Link]

    @property
    def roots(self) -> list[int]:
        """Places of the transitions that followed from none."""
        return [place for place in range(len(self.transitions)) if place not in self.parents]

    def family(self, root: int) -> list[int]:
        """Return a root and everything that followed from it, in causal order."""
        family = {root}
        for place in range(root + 1, len(self.transitions)):
            parent = self.parents.get(place)
            if parent is not None and parent.cause in family:
                family.add(place)
        return sorted(family)


def link(
    transitions: Sequence[Transition], depth: Depth, known: Mapping[str, Iterable[str]]
) -> Links:
    """Link transitions by known mechanisms.

    Args:
        transitions: in any order.
        depth: place of a layer in the order of execution, if it is known.
        known: fingerprint of an issue to those of the issues that a rule named as its causes.
    """
    causes = {
        effect: _causes(transitions, effect, depth, known) for effect in range(len(transitions))
    }
    order = _order(transitions, causes)
    rank = {place: number for number, place in enumerate(order)}
    parents = {}
    for effect, candidates in causes.items():
        earlier = {cause: why for cause, why in candidates.items() if rank[cause] < rank[effect]}
        if earlier:
            nearest = max(earlier, key=lambda cause: rank[cause])
            parents[rank[effect]] = Link(rank[nearest], rank[effect], earlier[nearest])
    return Links(tuple(transitions[place] for place in order), parents)


def _causes(
    transitions: Sequence[Transition],
    effect: int,
    depth: Depth,
    known: Mapping[str, Iterable[str]],
) -> dict[int, str]:
    """Return the places of what can have caused a transition, with the mechanism."""
    one = transitions[effect]
    named = {cause for fingerprint in one.fingerprints for cause in known.get(fingerprint, ())}
    found = {}
    for place, other in enumerate(transitions):
        if place == effect:
            continue
        if named.intersection(other.fingerprints):
            found[place] = "the rule that found it knows it as a consequence"
        elif why := mechanism(other, one, depth):
            found[place] = why
    return found


def _order(transitions: Sequence[Transition], causes: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the places so that causes come first; of two that may cause each other, the earlier.

    The algorithm of Kahn (1962); where a circle is left, what stands earliest in time and in the
    step breaks it.
    """
    waiting = {
        effect: {cause for cause in found if not _mutual(transitions, causes, effect, cause)}
        for effect, found in causes.items()
    }
    order: list[int] = []
    while waiting:
        free = [place for place, left in waiting.items() if not left] or list(waiting)
        chosen = min(free, key=lambda place: _moment(transitions[place]))
        order.append(chosen)
        del waiting[chosen]
        for left in waiting.values():
            left.discard(chosen)
    return order


def _mutual(
    transitions: Sequence[Transition],
    causes: Mapping[int, Iterable[int]],
    effect: int,
    cause: int,
) -> bool:
    """Whether the effect may as well have caused the cause, and rather did."""
    if effect not in causes[cause]:
        return False
    one, other = transitions[effect], transitions[cause]
    if abs(one.first_step - other.first_step) > _TOGETHER_STEPS:
        return one.first_step < other.first_step
    return (one.stage, *_moment(one), effect) < (other.stage, *_moment(other), cause)


def _moment(transition: Transition) -> tuple[int, int, int]:
    return (transition.first_step, transition.stage, position_of(transition.rule))
