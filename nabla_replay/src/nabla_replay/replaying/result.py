"""What a replay found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nabla_core.issue import Issue
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from ..environment.comparing import Difference
from .comparing import ComponentResult, StepResult, StepStatus
from .localizing import ModulePlace

__all__ = ["Divergence", "ReplayResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first difference between the replay and the record.

    Attributes:
        step: in which it was seen.
        component: that differs first, in the order of cause.
        names: tensors or generators that differ.
        since: first step in which it may have begun, where a part of the state is looked at in
            turns.
        place: module and direction, where that was asked for and could be found.
    """

    step: int
    component: str
    names: tuple[str, ...] = ()
    since: int | None = None
    place: ModulePlace | None = None

    @property
    def module(self) -> str | None:
        """Dotted path of the module in which it begins, if it was found."""
        return None if self.place is None else self.place.module

    @property
    def direction(self) -> str | None:
        """``forward``, ``backward``, ... if it was found."""
        return None if self.place is None else self.place.direction

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "step": self.step,
            "component": self.component,
            "names": list(self.names),
            "since": self.since,
            "module": self.module,
            "direction": self.direction,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(ResultMixin):
    """The outcome of a replay. It passes when every step matches.

    Attributes:
        run: folder of the run.
        issues: REP101 to REP104, REP901.
        steps: one result per executed step that was recorded, up to the first divergence.
        divergence: the first difference.
        environment: settings that are not as they were recorded.
        missing: components that were recorded and that the program to replay does not have.
        cautions: what else is known to stand in the way of exactness.
        planned: steps that were asked for.
        fail_on: severity from which it does not pass.
    """

    run: Path
    issues: tuple[Issue, ...]
    steps: tuple[StepResult, ...]
    divergence: Divergence | None = None
    environment: tuple[Difference, ...] = ()
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    planned: int = 0
    fail_on: Severity = Severity.HIGH

    @property
    def passed(self) -> bool:
        """Whether every step was compared and matches."""
        return (
            not self.failures
            and set(self.missing) <= {"loader"}  # a program may make its data by itself
            and len(self.steps) == self.planned > 0
            and all(one.status == "MATCH" for one in self.steps)
        )

    @property
    def status(self) -> StepStatus:
        """``MATCH``, ``DIVERGENCE``, or ``UNVERIFIED`` when some step could not be compared."""
        if self.divergence is not None:
            return "DIVERGENCE"
        return "MATCH" if self.passed else "UNVERIFIED"

    @property
    def exact_expected(self) -> bool:
        """Whether nothing is known that breaks bit-exactness."""
        return not any(one.breaks for one in self.environment) and not self.missing

    @property
    def breakers(self) -> tuple[str, ...]:
        """Names of what breaks bit-exactness here: settings, missing components."""
        return (*(one.name for one in self.environment if one.breaks), *self.missing)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "status": self.status,
            "run": str(self.run),
            "planned": self.planned,
            "steps": [_step(one) for one in self.steps],
            "divergence": None if self.divergence is None else self.divergence.to_dict(),
            "environment": [str(one) for one in self.environment],
            "missing": list(self.missing),
            "cautions": list(self.cautions),
            "issues": [issue.to_dict() for issue in self.issues],
        }

    def format(self) -> str:
        """Return the verdict, with its evidence."""
        from nabla_core.reporters.console import render_result

        return "\n".join([self.headline(), "", render_result(self)])

    def headline(self) -> str:
        """Return one sentence."""
        matched = sum(one.status == "MATCH" for one in self.steps)
        text = f"{matched} of {self.planned} steps match bit by bit"
        if self.divergence is not None:
            found = self.divergence
            where = f", {found.place}" if found.place is not None else ""
            return f"{text}; first difference at step {found.step}: {found.component}{where}"
        brief = sum(one.status == "MATCH" and one.is_brief for one in self.steps)
        if brief:
            text = f"{text} ({brief} of them recorded in brief: loss and one parameter)"
        unverified = self.planned - matched
        return f"{text}; {unverified} could not be compared" if unverified else text


def _step(one: StepResult) -> dict[str, object]:
    return {
        "step": one.step,
        "segment": one.segment,
        "status": one.status,
        "brief": one.is_brief,
        "components": {part.component: _component(part) for part in one.components},
    }


def _component(part: ComponentResult) -> dict[str, object]:
    shown: dict[str, object] = {"status": part.status}
    if part.names:
        shown["names"] = list(part.names)
    if part.status == "DIVERGENCE" and part.recorded:
        shown["recorded"], shown["replayed"] = part.recorded, part.replayed
    if part.reason:
        shown["reason"] = part.reason
    return shown
