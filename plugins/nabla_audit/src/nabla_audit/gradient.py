"""AUD206 and AUD207: gradients that are cut or zero by construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import LoopFacts, ParameterFacts
from nabla_guard.families.losses import LossWatch
from nabla_guard.families.nested import NestedFacts, NestedWatch
from nabla_guard.families.terms import DeadTerm, TermWatch

from .places import where
from .rules.gradient import LOSS_TERM_DETACHED, ZERO_GRADIENT_BY_CONSTRUCTION
from .streak import CONSECUTIVE

__all__ = ["DetachedTermDetector", "FlatGradientDetector"]

_TWICE = 2


class DetachedTermDetector:
    """Judges the terms of the loss."""

    rules = (LOSS_TERM_DETACHED,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(TermWatch)
        self._seen: Counter[str] = Counter()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the losses of the step."""
        if not self._watch.dead:
            return ()
        issues = [_term_issue(term, record.step) for term in self._watch.dead]
        self._seen.update({issue.fingerprint for issue in issues})
        return [issue for issue in issues if self._seen[issue.fingerprint] >= _TWICE]


def _term_issue(term: DeadTerm, step: int) -> Issue:
    place = term.cut_at
    at = f" at {place}" if place is not None else ""
    how = "autograd.grad without create_graph=True" if term.kind == "grad" else term.kind
    return LOSS_TERM_DETACHED.issue(
        f"A term of the loss ({term.value:.4g} of {term.total:.4g}) depends on {term.parameters} "
        f"trained parameters, but {how}{at} cut it from the graph: it has no gradient.",
        step=step,
        where=where(place, term.kind),
        phase="loss",
        term=Quantity(value=term.value),
        loss=Quantity(value=term.total),
        parameters=Quantity(value=term.parameters, unit="parameters", limit=0),
        cut_by=term.kind,
    )


class FlatGradientDetector:
    """Judges derivatives that are zero wherever they exist."""

    rules = (ZERO_GRADIENT_BY_CONSTRUCTION,)

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._nested = facts.gather(NestedWatch).lines
        self._losses = facts.gather(LossWatch).facts
        self._judged: set[str] = set()

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._nested

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what has been seen three times."""
        found = list(self._lines(record.step)) if self._nested else []
        optimizer = self._facts.stepping
        if self._losses.flat and optimizer is not None and optimizer.steps == CONSECUTIVE - 1:
            mine = [pair for pair in self._losses.flat if optimizer in pair[0].optimizers]
            found.extend(_flat_issues(mine, record.step))
        return found

    def _lines(self, step: int) -> Iterator[Issue]:
        for key, line in self._nested.items():
            if line.calls >= CONSECUTIVE and key not in self._judged:
                self._judged.add(key)
                if line.flat == line.calls:
                    yield _nested_issue(line, step)


def _nested_issue(line: NestedFacts, step: int) -> Issue:
    place = line.place
    how = "not connected to its input" if line.unconnected == line.calls else "exactly zero"
    return ZERO_GRADIENT_BY_CONSTRUCTION.issue(
        f"The second derivative taken at {place} was {how} in {line.flat} of its first "
        f"{line.calls} calls: what it is taken of is piecewise linear, so this term has no "
        "gradient.",
        step=step,
        where=where(place, "autograd.grad"),
        phase="loss",
        zero_results=Quantity(value=line.flat, unit="calls", limit=CONSECUTIVE),
    )


def _flat_issues(flat: list[tuple[ParameterFacts, str]], step: int) -> Iterator[Issue]:
    dead = [
        (facts, op)
        for facts, op in flat
        if facts.writes >= CONSECUTIVE and not facts.nonzero_writes
    ]
    if not dead:
        return
    first, op = dead[0]
    named = ", ".join(sorted({facts.name for facts, _ in dead})[:4])
    yield ZERO_GRADIENT_BY_CONSTRUCTION.issue(
        f"The gradients of {len(dead)} parameters ({named}) were exactly zero in {first.writes} "
        f"backward passes (limit {CONSECUTIVE}): every path from the loss to them passes {op}, "
        "whose derivative is zero.",
        step=step,
        where=Location(
            module=first.root.name if first.root is not None else None,
            parameter=first.name,
            op=op,
        ),
        phase="backward",
        parameters=Quantity(value=len(dead), unit="parameters", limit=0),
        zero_gradients=Quantity(value=first.writes, unit="backward passes", limit=CONSECUTIVE),
    )
