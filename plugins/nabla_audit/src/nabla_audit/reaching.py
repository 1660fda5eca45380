"""AUD203 and AUD204: parameters outside every module, and parameters before a cut in the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts, ParameterFacts, Place
from nabla_guard.families.cuts import Cut, CutWatch
from nabla_guard.families.reach import ReachWatch

from .ledger import Ledger
from .options import AuditOptions
from .places import at
from .rules.wiring import PARAMETER_NOT_REACHED, PARAMETER_UNREGISTERED
from .streak import CONSECUTIVE
from .watches.wrapped_values import WRAPPED, WrappedValueWatch

__all__ = ["ReachDetector"]


@dataclass(frozen=True, slots=True)
class _Finding:
    """Why a parameter has no gradient: a sentence, and whether it is a fault."""

    story: str
    faulty: bool
    place: Place | None = None
    meant: bool = False  # a fault that may be intended


class ReachDetector:
    """Judges the wiring of each optimizer once, at its third step."""

    rules = (PARAMETER_UNREGISTERED, PARAMETER_NOT_REACHED)
    patient = True

    def __init__(
        self, facts: LoopFacts, options: AuditOptions, session: Session | None = None
    ) -> None:
        self._facts = facts
        self._options = options
        self._reach = facts.gather(ReachWatch)
        self._cuts = facts.gather(CutWatch)
        self._wrapped = facts.gather(WrappedValueWatch)
        self._told: set[int] = set()
        self._ledger = Ledger(session)
        self._dead: dict[str, list[ParameterFacts]] = {}

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge when the optimizer is about to make its third step."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.steps != CONSECUTIVE - 1:
            return ()
        return [
            *self._unregistered(optimizer, record.step),
            *self._unreached(optimizer, record.step),
        ]

    # ------------------------------------------------------------------ AUD203
    def _unregistered(self, optimizer: OptimizerFacts, step: int) -> Iterator[Issue]:
        candidates = [
            facts
            for facts in self._facts.parameters
            if not facts.running
            and facts.is_parameter
            and not facts.ever_held
            and facts.nonzero_writes >= CONSECUTIVE
            and id(facts) not in self._told
        ]
        if not candidates or not optimizer.wrote:
            return
        self._facts.examine(candidates)
        held: dict[str, list[ParameterFacts]] = {}
        for facts in candidates:
            if facts.trainable and not facts.moved and not facts.optimizers:
                self._told.add(id(facts))
                held.setdefault(self._reach.holder(facts) or "", []).append(facts)
        for path, members in _by_container(held).items():
            yield _unregistered_issue(optimizer, path, members, step)

    # ------------------------------------------------------------------ AUD204
    def _unreached(self, optimizer: OptimizerFacts, step: int) -> Iterator[Issue]:
        dead = [
            facts
            for facts in optimizer.parameters
            if facts.trainable
            and facts.running
            and not facts.writes
            and not self._reach.given(facts)
            and id(facts) not in self._told
            and not any(fnmatchcase(facts.name, glob) for glob in self._options.frozen)
        ]
        if not dead or not optimizer.wrote:
            return
        groups: dict[_Finding, list[ParameterFacts]] = {}
        for facts in dead:
            self._told.add(id(facts))
            groups.setdefault(self._why(facts), []).append(facts)
        for finding, members in groups.items():
            issue = _unreached_issue(optimizer, finding, members, step)
            self._dead[issue.fingerprint] = members
            yield self._ledger.made(issue.fingerprint, issue)

    def finish(self) -> Iterable[Issue]:
        """What got gradients later was left out for a while, as in the warm-up of a head."""
        for key, members in self._dead.items():
            if all(facts.writes for facts in members):
                self._ledger.rewrite(key, _later_text(members), severity=Severity.INFO)
        return ()

    def _why(self, facts: ParameterFacts) -> _Finding:
        if self._reach.reached(facts):
            return _Finding(
                "the graph of the loss leads to them, so a custom backward returns None for them",
                True,
            )
        cut = self._cuts.cut(facts) or self._wrapped.cut(facts)
        if cut is not None:
            return _finding_of(cut)
        lost = self._cuts.lost(facts)
        if lost is not None:
            return _Finding(
                f"their values leave the graph by {lost.kind}{at(lost.place)}, and what the loss "
                "is made from changes when they do",
                True,
                lost.place,
            )
        if self._cuts.compiled:
            return _Finding("compiled code was not followed to find out why", False)
        return _Finding("the loss was not seen to depend on them", False)


def _later_text(members: list[ParameterFacts]) -> str:
    named = ", ".join(facts.name for facts in members[:4])
    writes = min(facts.writes for facts in members)
    return (
        f"{len(members)} parameters ({named}) received no gradient in the first {CONSECUTIVE} "
        f"steps (limit {CONSECUTIVE}), and {writes} or more later."
    )


def _finding_of(cut: Cut) -> _Finding:
    if cut.kind == "no_grad":
        return _Finding(
            f"the loss depends on them through values computed without gradients{at(cut.place)}",
            False,
            cut.place,
        )
    if cut.kind == "checkpoint":
        return _Finding(
            f"a reentrant checkpoint around them{at(cut.place)} was given no input that takes a "
            "gradient, so its backward never runs (use_reentrant=False needs none)",
            True,
            cut.place,
        )
    if cut.kind == "sample":
        return _Finding(
            f"the loss depends on them only through Distribution.sample(){at(cut.place)}, which "
            "has no gradient (rsample() has)",
            True,
            cut.place,
            meant=True,
        )
    if cut.kind == WRAPPED:
        return _Finding(
            f"values computed from them are made a new nn.Parameter{at(cut.place)}, and nothing "
            "behind it leads back to them",
            True,
            cut.place,
        )
    return _Finding(
        f"the loss depends on them, but their path is cut by {cut.kind}{at(cut.place)}",
        True,
        cut.place,
    )


def _severity(finding: _Finding) -> Severity:
    if not finding.faulty:
        return Severity.INFO
    return Severity.MEDIUM if finding.meant else Severity.HIGH


def _by_container(held: dict[str, list[ParameterFacts]]) -> dict[str, list[ParameterFacts]]:
    """Join the parameters of one plain attribute: a list of layers is one fault."""
    joined: dict[str, list[ParameterFacts]] = {}
    for path, members in held.items():
        joined.setdefault(path.partition("[")[0] if "[" in path else path, []).extend(members)
    return joined


def _unregistered_issue(
    optimizer: OptimizerFacts, path: str, members: list[ParameterFacts], step: int
) -> Issue:
    shapes = ", ".join(str(facts.shape) for facts in members[:3])
    where = f"kept in {path}, a plain attribute that registers nothing" if path else "in no module"
    writes = min(facts.nonzero_writes for facts in members)
    place = optimizer.backward_at
    return PARAMETER_UNREGISTERED.issue(
        f"{len(members)} parameters of shapes {shapes} are {where}: they received non-zero "
        f"gradients in {writes} backward passes (limit {CONSECUTIVE}), but are in no optimizer, no "
        "state_dict and no .to(), and do not change.",
        step=step,
        where=Location(
            module=path or None,
            parameter=path or f"shape {members[0].shape}",
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
        ),
        phase="parameter",
        severity=Severity.INFO if any(facts.loaded for facts in members) else Severity.HIGH,
        parameters=Quantity(value=len(members), unit="parameters", limit=0),
        gradient_writes=Quantity(value=writes, unit="backward passes", limit=CONSECUTIVE),
    )


def _unreached_issue(
    optimizer: OptimizerFacts, finding: _Finding, members: list[ParameterFacts], step: int
) -> Issue:
    names = ", ".join(facts.name for facts in members[:4])
    more = ", ..." if len(members) > 4 else ""
    place = finding.place
    dead, live = _border(optimizer, members)
    border = f"; the last module with gradients is {live}, the first without is {dead}"
    return PARAMETER_NOT_REACHED.issue(
        f"{len(members)} parameters in {optimizer.name} ({names}{more}) received no gradient in "
        f"{CONSECUTIVE} steps (limit {CONSECUTIVE}): {finding.story}"
        f"{border if finding.faulty and live else ''}.",
        step=step,
        where=Location(
            module=dead,
            parameter=members[0].name,
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
            function=place.function if place is not None else None,
        ),
        phase="backward",
        severity=_severity(finding),
        parameters=Quantity(value=len(members), unit="parameters", limit=0),
        steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        last_live_module=live or "",
        first_dead_module=dead or "",
    )


def _border(
    optimizer: OptimizerFacts, members: list[ParameterFacts]
) -> tuple[str | None, str | None]:
    """Seen from the loss: the first module without gradients and the last one with them, in the
    order in which the root module registers them."""
    last = members[-1]
    order = last.root.parameters if last.root is not None else optimizer.parameters
    at = next((index for index, facts in enumerate(order) if facts is last), len(order))
    behind = next((facts for facts in order[at + 1 :] if facts.writes), None)
    return _module(last), None if behind is None else _module(behind)


def _module(facts: ParameterFacts) -> str:
    root = facts.root.name if facts.root is not None else ""
    return f"{root}.{facts.owner}".strip(".") or facts.name
