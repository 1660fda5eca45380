"""Semantic transitions: from which state to which one, where, when, and how sure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nabla_core.issue import Issue
from nabla_core.severity import Severity

from .meaning import Stage, meaning_of
from .rules import INPUT_SHIFT, LAYER_JUMP, PROPAGATION

__all__ = ["Transition", "collapse", "of_issues"]

_NO_FAULTS_OF_A_RUN = ("NAB", "CHK", "CAU101", "CAU102", "CAU103", "PRC", "REP2", "REP3")
"""The tool, operators, causes, an audit of dtypes, stored files, answers of a search."""

_BY_RANGES = (PROPAGATION.id, LAYER_JUMP.id)
_HELD = "NUM105"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Something in a run changed its state.

    Attributes:
        kind: e.g. ``"gradient_health"``; see :data:`.meaning.KINDS`.
        failure: e.g. ``"vanishing_gradients"``; see :data:`.meaning.FAILURES`.
        from_state: state before.
        to_state: state after.
        layer: module or parameter; empty when it concerns the whole run.
        first_step: 0-based optimizer step at which it was first seen.
        last_step: step at which it was last seen.
        stage: where in a step.
        confidence: 0 to 1; 1 for an exact fact.
        severity: of the finding.
        rule: ID of the rule that found it; ``CAU102`` when the ranges of the layers show it.
        text: the finding in one sentence.
        fingerprints: of the issues behind it, if any.
        sample: place in the batch of the sample that it came with, if a rule named one.
        dtype: type of the numbers, if a rule named it.
        executed_again: what executing the step again has shown, if a rule decided by that.
        name: of that rule.
        source: line of the program, e.g. ``"train.py:12"``, if the rule names one.
        near: where it may be as well, e.g. ``"0 or in what it was given"``; empty when it is known.
        earliest: the first step at which it may have begun, where looks lie steps apart; else -1.
        is_dated: whether the rule named a step; ``first_step`` is 0 otherwise.
    """

    kind: str
    failure: str
    from_state: str
    to_state: str
    layer: str
    first_step: int
    last_step: int
    stage: Stage
    confidence: float
    severity: Severity
    rule: str
    text: str
    fingerprints: tuple[str, ...] = ()
    sample: int | None = None
    dtype: str = ""
    executed_again: str = ""
    name: str = ""
    source: str = ""
    near: str = ""
    earliest: int = -1
    is_dated: bool = True

    @property
    def was_there(self) -> bool:
        """Whether a parameter or buffer was not finite before anything of the step was computed."""
        return self.rule == _HELD and bool(self.executed_again)

    @property
    def place(self) -> str:
        """The layer and the step, for a sentence."""
        layer = f" in {self.near or self.layer}" if self.layer else ""
        if layer and not self.near and self.rule in _BY_RANGES:
            layer += " or right before it"  # what runs between layers is not seen
        return f"{layer} at step {self.first_step}" if self.is_dated else layer

    @property
    def found_by(self) -> str:
        """The rule, and the line of the program if it names one, for a sentence."""
        rule = f"{self.rule} {self.name}" if self.name else self.rule
        return f"{rule} at {self.source}" if self.source else rule

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "kind": self.kind,
            "failure": self.failure,
            "from_state": self.from_state,
            "to_state": self.to_state,
            "layer": self.layer,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "stage": self.stage.name.lower(),
            "confidence": self.confidence,
            "severity": self.severity.label,
            "rule": self.rule,
            "source": self.source,
            "text": self.text,
            "fingerprints": list(self.fingerprints),
        }

    def __str__(self) -> str:
        steps = f"step {self.first_step}"
        if self.last_step > self.first_step:
            steps = f"steps {self.first_step} to {self.last_step}"
        layer = f" {self.layer}" if self.layer else ""
        return f"{steps}:{layer} {self.kind} {self.from_state} -> {self.to_state} ({self.rule})"


def of_issues(issues: Iterable[Issue]) -> list[Transition]:
    """Return what the issues say, in the order of time; those about the tool itself are left out.

    A finding that another rule marked as its consequence is kept: it belongs to the chain.
    """
    found = [_of(issue) for issue in issues if _counts(issue)]
    return sorted(found, key=lambda transition: (transition.first_step, transition.stage))


def collapse(transitions: Sequence[Transition]) -> list[Transition]:
    """Join transitions of the same layer and kind into the same state whose steps touch.

    Two that lie further apart than the first one lasted, and than ten steps, stay apart.
    """
    joined: list[Transition] = []
    latest: dict[tuple[str, str, str], int] = {}
    for transition in transitions:
        key = (transition.layer, transition.kind, transition.to_state)
        place = latest.get(key)
        if place is not None and _touch(joined[place], transition):
            joined[place] = _join(joined[place], transition)
        else:
            latest[key] = len(joined)
            joined.append(transition)
    return joined


def _counts(issue: Issue) -> bool:
    about_tool = issue.rule.startswith(_NO_FAULTS_OF_A_RUN) or issue.rule[3:4] == "9"
    told = issue.severity > Severity.INFO or bool(issue.related) or issue.rule == INPUT_SHIFT.id
    return told and not about_tool


def _of(issue: Issue) -> Transition:
    meaning = meaning_of(issue.rule)
    step = _began(issue)
    return Transition(
        kind=meaning.kind,
        failure=meaning.failure,
        from_state="normal",
        to_state=meaning.state,
        layer=_layer(issue),
        first_step=step,
        last_step=max(step, issue.step or 0, issue.last_step or 0),
        stage=meaning.stage,
        confidence=issue.confidence,
        severity=issue.severity,
        rule=issue.rule,
        text=issue.message,
        fingerprints=(issue.fingerprint,),
        sample=None if issue.where is None else issue.where.sample,
        dtype=str(issue.evidence.get("dtype", "")),
        executed_again=_executed_again(issue),
        name=issue.name,
        source=_source(issue),
        earliest=_earliest(issue),
        is_dated=issue.step is not None,
    )


def _began(issue: Issue) -> int:
    """Its first step: the one that a rule names which waits until several steps agree."""
    step, since = max(0, issue.step or 0), issue.evidence.get("since_step")
    return min(step, since) if isinstance(since, int) and since >= 0 else step


def _executed_again(issue: Issue) -> str:
    """What the guard saw when it executed the bad step again, op by op."""
    if not issue.rule.startswith("NUM10") or "inputs_finite" not in issue.evidence:
        return ""  # decided by exclusion at the boundary of the step
    if "not_the_same" in issue.evidence:
        return ""
    where = issue.where
    if where is None or where.op in (None, "", "input") or issue.rule == _HELD:
        return "it was there before anything else was computed"
    inputs = "finite inputs" if issue.evidence["inputs_finite"] else "its inputs"
    return f"{where.op} made the first number that is not finite out of {inputs}"


def _earliest(issue: Issue) -> int:
    after = issue.evidence.get("after_step")
    return (
        int(after) + 1 if issue.rule == INPUT_SHIFT.id and isinstance(after, (int, float)) else -1
    )


def _source(issue: Issue) -> str:
    where = issue.where
    if where is None or not where.file:
        return ""
    name = where.file.replace("\\", "/").rpartition("/")[2]
    return name if where.line is None else f"{name}:{where.line}"


def _layer(issue: Issue) -> str:
    if issue.where is None:
        return ""
    return issue.where.module or (issue.where.parameter or "").rpartition(".")[0]


def _touch(one: Transition, other: Transition) -> bool:
    gap = other.first_step - one.last_step
    return gap <= max(10, one.last_step - one.first_step)


def _join(one: Transition, other: Transition) -> Transition:
    return replace(
        one,
        last_step=max(one.last_step, other.last_step),
        confidence=max(one.confidence, other.confidence),
        severity=max(one.severity, other.severity),
        fingerprints=tuple(dict.fromkeys((*one.fingerprints, *other.fingerprints))),
    )
