"""Hypotheses about what made a run fail: a root, its chain, what speaks for and against it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nabla_core.issue import Location
from nabla_core.report import Cause
from nabla_core.reporters.style import counted
from nabla_core.severity import Severity

from .confirmation import Confirmation, Outcome, standing
from .grouping import alike, listed
from .links import Link, Links
from .meaning import Stage, in_words
from .mechanisms import test_of
from .rules import INPUT_SHIFT, PROPAGATION, ROOT_CAUSE
from .transitions import Transition

__all__ = ["Hypothesis", "hypotheses_in", "ranked"]

_BY_FAMILY = {"AUD": 1.0, "NUM": 1.0, "CAU": 0.9, "RUN": 0.8, "GEO": 0.8, "CON": 0.5}
_BY_SEVERITY = {
    Severity.CRITICAL: 1.0,
    Severity.HIGH: 1.0,
    Severity.MEDIUM: 0.9,
    Severity.LOW: 0.7,
    Severity.INFO: 0.5,
}
_SHOWN = (PROPAGATION.id, INPUT_SHIFT.id)
"""What is no finding by itself: it counts only as far as a finding followed from it."""

_OF_SOME_LAYERS = ("updates_stopped", "gradients_lost", "step_too_small")
"""What may be wrong with one layer only: then it is seen in that one alone."""

_ALONE = 0.7
_MOST_EFFECTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """What may be the root cause.

    Attributes:
        root: where it began.
        chain: the root and everything that followed from it, in causal order.
        links: the mechanism by which each one followed, in the same order; the root has none.
        score: 0 to 1, to rank hypotheses; no probability.
        supports: what speaks for it, one sentence each.
        contradicts: what speaks against it, one sentence each.
        tests: what would confirm it, as long as nothing has.
        confirmations: tests that were run, and what they showed.
    """

    root: Transition
    chain: tuple[Transition, ...]
    links: tuple[str, ...]
    score: float
    supports: tuple[str, ...]
    contradicts: tuple[str, ...]
    tests: tuple[str, ...]
    confirmations: tuple[Confirmation, ...] = ()

    @property
    def standing(self) -> Outcome:
        """Whether a test has confirmed or refuted it."""
        return standing(self.confirmations)

    @property
    def description(self) -> str:
        """The hypothesis in one sentence."""
        root = self.root
        text = (
            f"{in_words(root.failure)} began{root.place} ({root.found_by}, score {self.score:.2f})"
        )
        effects = list(dict.fromkeys(in_words(effect.failure) for effect in self.chain[1:]))
        effects = [effect for effect in effects if effect != in_words(root.failure)]
        if effects:
            text += f" and led to {', '.join(effects[:_MOST_EFFECTS])}"
        passed_on = len({effect.layer for effect in self.chain[1:] if effect.layer} - {root.layer})
        if passed_on:
            text += f"; {counted(passed_on, 'other layer')} took part"
        text = f"{text[0].upper()}{text[1:]}."
        told = [str(one) for one in self.confirmations if one.outcome == self.standing]
        if told and self.standing != "undecided":
            text += f" {told[0][0].upper()}{told[0][1:]}."
        return text

    def __str__(self) -> str:
        return self.description

    def concerns(self, name: str) -> bool:
        """Whether a kind or a failure is part of the chain."""
        return any(name in (link.kind, link.failure) for link in self.chain)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "description": self.description,
            "score": self.score,
            "root": self.root.to_dict(),
            "chain": [transition.to_dict() for transition in self.chain],
            "links": list(self.links),
            "supports": list(self.supports),
            "contradicts": list(self.contradicts),
            "tests": list(self.tests),
            "standing": self.standing,
            "confirmations": [one.to_dict() for one in self.confirmations],
        }

    def cause(self) -> Cause:
        """Return it as a part of a report."""
        root = self.root
        prints = [print for transition in self.chain for print in transition.fingerprints]
        return Cause(
            rule=PROPAGATION.id if root.rule == PROPAGATION.id else ROOT_CAUSE.id,
            chain=tuple(dict.fromkeys(prints)),
            score=self.score,
            statement=self.description,
            tests=self.tests,
            where=Location(module=root.layer) if root.layer else None,
            step=root.first_step if root.is_dated else None,
            supports=(*self.supports, *self._told("confirmed")),
            contradicts=(*self.contradicts, *self._told("refuted")),
        )

    def _told(self, outcome: Outcome) -> tuple[str, ...]:
        return tuple(f"{one}." for one in self.confirmations if one.outcome == outcome)


def ranked(hypotheses: Iterable[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Return the confirmed ones first and the refuted ones last, each by its score."""
    order = {"confirmed": 0, "undecided": 1, "refuted": 2}
    return tuple(sorted(hypotheses, key=lambda one: (order[one.standing], -one.score)))


def hypotheses_in(links: Links) -> list[Hypothesis]:
    """Return the hypotheses, the most likely one first.

    What ranges and inputs show counts only as far as a finding followed from it.
    """
    weights = [_weight(transition) for transition in links.transitions]
    total = sum(weights) or 1.0
    found = []
    for root in links.roots:
        family = links.family(root)
        if any(links.transitions[place].rule not in _SHOWN for place in family):
            explained = sum(weights[place] for place in family) / total
            found.append(_hypothesis(links, family, explained))
    return list(ranked(found))


def _weight(transition: Transition) -> float:
    return 0.0 if transition.rule in _SHOWN else _BY_SEVERITY[transition.severity]


def _hypothesis(links: Links, family: list[int], explained: float) -> Hypothesis:
    chain = tuple(links.transitions[place] for place in family)
    # a statistical rule may see a cause some steps after its effects; it began no later than they
    root = replace(
        chain[0], first_step=min(one.first_step for one in chain), layer=_layer_of(chain)
    )
    chain = (root, *chain[1:])
    parents = [links.parents[place] for place in family[1:]]
    confirmations = tuple(_executed_again(root))
    return Hypothesis(
        root=root,
        chain=chain,
        links=tuple(parent.why for parent in parents),
        score=round(_certainty(root) * (_ALONE + (1.0 - _ALONE) * explained), 3),
        supports=_supports(links, root, parents),
        contradicts=_contradicts(links, family),
        tests=() if confirmations else _tests(root),
        confirmations=confirmations,
    )


def _layer_of(chain: tuple[Transition, ...]) -> str:
    """The layer of the root; where it names none, the only one in which the same was seen."""
    root, effects = chain[0], chain[1:]
    seen = {one.layer for one in effects if one.failure == root.failure and one.layer}
    adopts = not root.layer and root.failure in _OF_SOME_LAYERS and len(seen) == 1
    return seen.pop() if adopts else root.layer


def _executed_again(root: Transition) -> Iterable[Confirmation]:
    """The test that a live session runs by itself: the bad step once more, op by op."""
    if root.executed_again:
        yield Confirmation(
            test=f"step {root.first_step} executed again op by op",
            outcome="confirmed",
            reason=root.executed_again,
        )


def _certainty(root: Transition) -> float:
    if root.rule in _SHOWN:
        return root.confidence
    return root.confidence * _BY_FAMILY.get(root.rule[:3], 0.6) * _BY_SEVERITY[root.severity]


def _supports(links: Links, root: Transition, parents: list[Link]) -> tuple[str, ...]:
    """Return one sentence for each thing that followed; layers that show the same share one."""
    groups: list[list[Link]] = []
    for parent in parents:
        effect = links.transitions[parent.effect]
        if groups and alike(links.transitions[groups[-1][-1].effect], effect):
            groups[-1].append(parent)
        else:
            groups.append([parent])
    return (root.text, *(_followed(links, group) for group in groups))


def _followed(links: Links, group: list[Link]) -> str:
    first = group[0]
    cause, effect = links.transitions[first.cause], links.transitions[first.effect]
    place = effect.place
    if len(group) > 1:
        names = [links.transitions[parent.effect].layer for parent in group]
        place = f" in {listed(names)} ({len(names)} layers) at step {effect.first_step}"
    text = (
        f"{in_words(effect.failure)}{place} ({effect.rule}) followed from "
        f"{in_words(cause.failure)}{cause.place}: {first.why}."
    )
    return f"{text[0].upper()}{text[1:]}"


def _contradicts(links: Links, family: list[int]) -> tuple[str, ...]:
    root = links.transitions[family[0]]
    lines = []
    for place, other in enumerate(links.transitions):
        if place in family or other.rule in _SHOWN:
            continue
        when = "earlier" if other.first_step < root.first_step else "too"
        lines.append(
            f"{in_words(other.failure)}{other.place} ({other.rule}) was seen {when}, and no known "
            "mechanism leads to it from here."
        )
    return tuple(lines)


def _tests(root: Transition) -> tuple[str, ...]:
    text = test_of(root)
    if root.near.endswith("what it was given") and root.stage == Stage.FORWARD:
        text = f"train the same steps without the batch of step {root.first_step}; else {text}"
    return (f"{text[0].upper()}{text[1:]}.",)
