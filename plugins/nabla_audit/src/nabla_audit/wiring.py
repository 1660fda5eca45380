"""AUD201 and AUD202: which parameters the optimizers hold, and which ones the program trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts, ParameterFacts
from nabla_guard.families.reach import ReachWatch

from .ledger import Ledger
from .places import where
from .rules.wiring import FOREIGN_PARAMETER, PARAMETER_NOT_IN_OPTIMIZER
from .streak import CONSECUTIVE

__all__ = ["WiringDetector"]


_PATIENCE_WRITES = 8
_MANY_STEPS = 10


class WiringDetector:
    """Judges the wiring of each optimizer at its third step, and parameters that join later."""

    rules = (PARAMETER_NOT_IN_OPTIMIZER, FOREIGN_PARAMETER)
    patient = True

    def __init__(self, facts: LoopFacts, session: Session | None = None) -> None:
        self._facts = facts
        self._ledger = Ledger(session)
        self._left: dict[str, list[ParameterFacts]] = {}
        self._reach = facts.gather(ReachWatch)
        self._judged: set[int] = set()
        self._next_look = _MANY_STEPS
        self._idle: dict[int, tuple[OptimizerFacts, list[ParameterFacts], int]] = {}

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge when the optimizer is about to make its third step, and now and then after it."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.steps < CONSECUTIVE - 1:
            return ()
        if optimizer.steps == CONSECUTIVE - 1:
            return self._judge(optimizer, list(self._facts.parameters), record.step)
        if optimizer.steps >= self._next_look:
            self._next_look = 2 * optimizer.steps
            self._note_idle(optimizer.steps)
        if not self._have_joined():
            return ()
        known = list(self._facts.parameters)
        joined = self._beside(optimizer, self._left_out(known), known)
        return list(self._tell_left_out(optimizer, self._once(joined), record.step))

    def _is_untrained(self, members: list[ParameterFacts]) -> bool:
        """Whether a whole root module has nothing but the constants it was made with: a loss with
        weights of its own, whose parameters are easily forgotten."""
        root = members[0].root
        parts = [] if root is None else root.parameters
        loose = not any(facts.ever_held or facts.loaded for facts in parts)
        return bool(parts) and loose and all(map(self._reach.is_constant, parts))

    def _have_joined(self) -> bool:
        """Whether parameters of no optimizer have had three gradients since the first verdict."""
        waiting = self._reach.newcomers
        if not waiting:
            return False
        ready = any(facts.nonzero_writes >= CONSECUTIVE for facts in waiting)
        waiting[:] = [
            facts
            for facts in waiting
            if facts.nonzero_writes < CONSECUTIVE and facts.writes < _PATIENCE_WRITES
        ]
        return ready

    def _judge(
        self, optimizer: OptimizerFacts, known: list[ParameterFacts], step: int
    ) -> list[Issue]:
        left_out = self._left_out(known)
        foreign = [
            facts
            for facts in optimizer.parameters
            if facts.trainable and not facts.running and not facts.writes
        ]
        if foreign and left_out and any(facts.running for facts in known):
            return [_foreign_issue(optimizer, foreign, self._once(left_out), step)]
        remade = self._reach.replaced(foreign) if foreign and not left_out else []
        if remade:
            return [_foreign_issue(optimizer, foreign, self._once(remade), step)]
        if left_out and self._holds_only_frozen(optimizer):
            return [_frozen_issue(optimizer, self._once(left_out), step)]
        mine = self._once(self._beside(optimizer, left_out, known))
        idle = self._once(self._held_by_idle(known)) if _is_all(foreign, optimizer) else []
        if idle:
            return [_foreign_issue(optimizer, foreign, idle, step)]
        return list(self._tell_left_out(optimizer, mine, step))

    def _tell_left_out(
        self, optimizer: OptimizerFacts, left_out: list[ParameterFacts], step: int
    ) -> Iterator[Issue]:
        """One issue per module, judged by its largest parameter: a bias of zeros says nothing."""
        replaced = [facts for facts in left_out if _took_a_place(facts, optimizer)]
        if replaced:
            story = _replaced_story(optimizer, replaced)
            yield _unheld_issue(optimizer, story, len(replaced), len(replaced), step)
            left_out = [facts for facts in left_out if facts not in replaced]
        owners: dict[tuple[int, str], list[ParameterFacts]] = {}
        for facts in left_out:
            owners.setdefault((id(facts.root), facts.owner), []).append(facts)
        for (_, owner), members in owners.items():
            root = members[0].root.name if members[0].root is not None else ""
            level = Severity.HIGH if _is_faulty(members) else Severity.INFO
            if level is Severity.INFO and self._is_untrained(members):
                level = Severity.MEDIUM
            issue = _left_out_issue(optimizer, f"{root}.{owner}".rstrip("."), members, level, step)
            self._left[issue.fingerprint] = members
            yield self._ledger.made(issue.fingerprint, issue)

    def _held_by_idle(self, known: Iterable[ParameterFacts]) -> list[ParameterFacts]:
        """Running parameters with gradients that nobody changes, because no optimizer that holds
        them has ever stepped."""
        candidates = [
            facts
            for facts in known
            if facts.running
            and facts.optimizers
            and facts.nonzero_writes >= CONSECUTIVE
            and not any(optimizer.steps for optimizer in facts.optimizers)
        ]
        self._facts.examine(candidates)
        return [facts for facts in candidates if facts.trainable and not facts.moved]

    def finish(self) -> Iterable[Issue]:
        """Judge the optimizers that had never stepped when others made their tenth step, and
        later; what joined an optimizer in a later stage was no fault."""
        for key, left in self._left.items():
            if all(facts.ever_held for facts in left):
                self._ledger.rewrite(key, _joined_text(left), severity=Severity.INFO)
        for optimizer, members, steps in self._idle.values():
            mine = [] if optimizer.steps else self._once(members)
            if mine:
                yield _never_stepped_issue(optimizer, mine, steps)

    def _note_idle(self, steps: int) -> None:
        """Remember optimizers that have not stepped; a program's objects are gone at its end."""
        self._idle.clear()
        for facts in self._held_by_idle(list(self._facts.parameters)):
            for optimizer in facts.optimizers:
                self._idle.setdefault(id(optimizer), (optimizer, [], steps))[1].append(facts)

    def _holds_only_frozen(self, optimizer: OptimizerFacts) -> bool:
        """Whether nothing that this optimizer holds can get a gradient, and no other one steps."""
        if optimizer.wrote or any(
            other.steps for other in self._facts.optimizers if other is not optimizer
        ):
            return False
        self._facts.examine(optimizer.parameters)
        return not any(facts.trainable or facts.writes for facts in optimizer.parameters)

    def _once(self, left_out: list[ParameterFacts]) -> list[ParameterFacts]:
        new = [facts for facts in left_out if id(facts) not in self._judged]
        self._judged.update(map(id, new))
        return new

    def _left_out(self, known: Iterable[ParameterFacts]) -> list[ParameterFacts]:
        """Running parameters with non-zero gradients that nobody holds and nobody changes."""
        candidates = [
            facts
            for facts in known
            if facts.running
            and facts.is_parameter
            and not facts.ever_held
            and facts.nonzero_writes >= CONSECUTIVE
            and id(facts) not in self._judged
        ]
        self._facts.examine(candidates)
        return [
            facts
            for facts in candidates
            if facts.trainable and not facts.moved and not facts.ever_held
        ]

    def _beside(
        self,
        optimizer: OptimizerFacts,
        left_out: list[ParameterFacts],
        known: list[ParameterFacts],
    ) -> list[ParameterFacts]:
        """Those that took part in this optimizer's steps: a root that another optimizer trains is
        judged there, and one that no optimizer trains counts only while it is in training mode."""
        held_roots = {id(facts.root) for facts in known if optimizer in facts.optimizers}
        trained_roots = {id(facts.root) for facts in known if facts.optimizers}
        training = {
            id(facts)
            for module in self._facts.modules
            if module.trained_calls
            for facts in module.parameters
        }
        return [
            facts
            for facts in left_out
            if id(facts.root) in held_roots
            or (id(facts.root) not in trained_roots and id(facts) in training)
        ]


def _took_a_place(facts: ParameterFacts, optimizer: OptimizerFacts) -> bool:
    """Whether the optimizer holds another parameter that was trained under the same name."""
    return any(
        held.name == facts.name and held.root is facts.root and held.writes and held is not facts
        for held in optimizer.parameters
    )


def _replaced_story(optimizer: OptimizerFacts, replaced: list[ParameterFacts]) -> str:
    return (
        f"{_missing(replaced)} are in no optimizer that steps: they have taken the place of those "
        f"of the same name that {_made(optimizer)} still holds (limit: 0 replaced)."
    )


def _joined_text(members: list[ParameterFacts]) -> str:
    named = ", ".join(facts.name for facts in members[:4])
    owners = {facts.name for member in members for facts in member.optimizers}
    writes = min(facts.nonzero_writes for facts in members)
    return (
        f"{len(members)} parameters ({named}) received non-zero gradients in {writes} or more "
        f"backward passes (limit {CONSECUTIVE}) before they joined {' and '.join(sorted(owners))}: "
        "until then they kept their initial values."
    )


def _is_all(found: list[ParameterFacts], optimizer: OptimizerFacts) -> bool:
    return bool(found) and len(found) == len(optimizer.parameters)


def _never_stepped_issue(
    optimizer: OptimizerFacts, members: list[ParameterFacts], steps: int
) -> Issue:
    named = ", ".join(facts.name for facts in members[:4])
    writes = min(facts.nonzero_writes for facts in members)
    place = optimizer.made_at
    made = f" made at {place}" if place is not None else ""
    return PARAMETER_NOT_IN_OPTIMIZER.issue(
        f"{len(members)} parameters ({named}) received non-zero gradients in {writes} backward "
        f"passes (limit {CONSECUTIVE}) and did not change: the only optimizer that holds them, the "
        f"{optimizer.name}{made}, made 0 steps while another made {steps}.",
        where=where(place, optimizer.name),
        phase="loop",
        severity=Severity.MEDIUM,
        parameters=Quantity(value=len(members), unit="parameters", limit=0),
        gradient_writes=Quantity(value=writes, unit="backward passes", limit=CONSECUTIVE),
        own_steps=0,
    )


def _foreign_issue(
    optimizer: OptimizerFacts,
    foreign: list[ParameterFacts],
    left_out: list[ParameterFacts],
    step: int,
) -> Issue:
    story = (
        f"{len(foreign)} of {len(optimizer.parameters)} parameters in {_made(optimizer)} belong to "
        f"no module that runs and never received a gradient, while {_missing(left_out)} are in no "
        "optimizer that steps."
    )
    return _unheld_issue(optimizer, story, len(foreign), len(left_out), step)


def _frozen_issue(optimizer: OptimizerFacts, left_out: list[ParameterFacts], step: int) -> Issue:
    count = len(optimizer.parameters)
    story = (
        f"All {count} parameters in {_made(optimizer)} have requires_grad=False and never "
        f"received a gradient, while {_missing(left_out)} are in no optimizer: the steps train "
        "nothing (limit 0)."
    )
    return _unheld_issue(optimizer, story, count, len(left_out), step)


def _made(optimizer: OptimizerFacts) -> str:
    place = optimizer.made_at
    return optimizer.name + (f" (made at {place})" if place is not None else "")


def _missing(left_out: list[ParameterFacts]) -> str:
    named = ", ".join(facts.name for facts in left_out[:3])
    tail = ", ..." if len(left_out) > 3 else ""
    return f"{len(left_out)} running parameters with gradients ({named}{tail})"


def _unheld_issue(
    optimizer: OptimizerFacts, story: str, foreign: int, missing: int, step: int
) -> Issue:
    return FOREIGN_PARAMETER.issue(
        story,
        step=step,
        where=where(optimizer.made_at, optimizer.name),
        phase="loop",
        foreign_parameters=Quantity(value=foreign, unit="parameters", limit=0),
        missing_parameters=Quantity(value=missing, unit="parameters", limit=0),
    )


def _is_faulty(members: list[ParameterFacts]) -> bool:
    largest = max(members, key=lambda facts: facts.size)
    faulty = largest.fresh is True and not any(facts.loaded for facts in members)
    return faulty or all(facts.frozen_first for facts in members)


def _left_out_issue(
    optimizer: OptimizerFacts,
    module: str,
    members: list[ParameterFacts],
    severity: Severity,
    step: int,
) -> Issue:
    named = ", ".join(facts.name for facts in members[:4])
    writes = min(facts.nonzero_writes for facts in members)
    tail = (
        "and do not change, although they were frozen at first and were unfrozen since"
        if all(facts.frozen_first for facts in members)
        else "and keep random initial values"
        if severity is Severity.HIGH
        else "and keep the constants that they were made with"
        if severity is Severity.MEDIUM
        else "and do not change; if that is meant, requires_grad_(False) saves their gradients"
    )
    place = optimizer.made_at
    return PARAMETER_NOT_IN_OPTIMIZER.issue(
        f"{len(members)} parameters of {module} ({named}) received non-zero gradients in {writes} "
        f"backward passes (limit {CONSECUTIVE}), are in no optimizer {tail}.",
        step=step,
        where=Location(
            module=module,
            parameter=members[0].name,
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
        ),
        phase="loop",
        severity=severity,
        parameters=Quantity(value=len(members), unit="parameters", limit=0),
        gradient_writes=Quantity(value=writes, unit="backward passes", limit=CONSECUTIVE),
        loaded=any(facts.loaded for facts in members),
    )
