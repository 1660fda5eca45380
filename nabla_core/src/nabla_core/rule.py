"""A rule: the single place of its texts, and the only maker of its issues."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .errors import RuleDefinitionError
from .issue import Evidence, Issue, Location, Phase
from .severity import Severity

__all__ = ["Example", "Rule", "Stability"]

Stability = Literal["preview", "stable", "deprecated"]
"""``preview`` rules run only when asked for; ``deprecated`` ones say what replaces them."""

_ID = re.compile(r"[A-Z]{3,4}[0-9]{3}")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A short program that the rule reports, and its healthy twin."""

    bad: str
    good: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is wrong, why it matters, what to do, and when the rule itself is wrong.

    Attributes:
        id: three capitals (third parties: three or four) and three digits; permanent.
        name: kebab-case, unique.
        summary: one sentence, the fault as a fact.
        rationale: why it matters.
        fix: what to do.
        limits: when the rule is silent or may be wrong; the rule of legitimacy where intent is
            judged.
        severity: severity before configuration.
        since: version that introduced the rule.
        stability: see :data:`Stability`.
        aliases: codes of other tools that users have in their configuration (many-to-many).
        needs: names of the signals or facts without which the rule is not evaluated.
        options: names of the options that hold its limits.
        tags: free words to filter by.
        example: faulty program and healthy twin.

    Raises:
        RuleDefinitionError: the ID, the name or one of the texts breaks the conventions.
    """

    id: str
    name: str
    summary: str
    rationale: str
    fix: str
    limits: str
    severity: Severity
    since: str
    stability: Stability = "stable"
    aliases: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    example: Example | None = None

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise RuleDefinitionError(
                f"rule ID {self.id!r}: needs three or four capitals and three digits, like ACM101"
            )
        if not _NAME.fullmatch(self.name):
            raise RuleDefinitionError(
                f"{self.id}: name {self.name!r} is not kebab-case, like gradient-spike"
            )
        for text in ("summary", "rationale", "fix", "limits", "since"):
            if not getattr(self, text).strip():
                raise RuleDefinitionError(f"{self.id}: {text} is empty; every rule states it")

    @property
    def prefix(self) -> str:
        """The capitals of the ID, owned by one distribution."""
        return self.id[:-3]

    @property
    def category(self) -> str:
        """``UPPER_SNAKE`` form of the name."""
        return self.name.replace("-", "_").upper()

    def issue(
        self,
        message: str,
        *,
        step: int | None = None,
        where: Location | None = None,
        phase: Phase | None = None,
        severity: Severity | None = None,
        confidence: float = 1.0,
        **evidence: Evidence,
    ) -> Issue:
        """Make an issue of this rule; the texts come from the rule.

        Args:
            message: one sentence with the measured value and the limit.
            step: 0-based optimizer step, if there is one.
            where: place in the model, source or data.
            phase: part of the training step.
            severity: only when this finding is less (or more) certain than the rule's default.
            confidence: 1.0 for an exact fact.
            **evidence: the numbers that prove the message.
        """
        return Issue(
            rule=self.id,
            name=self.name,
            severity=self.severity if severity is None else severity,
            message=message,
            where=where,
            step=step,
            last_step=step,
            phase=phase,
            evidence=evidence,
            limitation=self.limits,
            suggestion=self.fix,
            confidence=confidence,
        )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping of everything the rule states."""
        return {
            "id": self.id,
            "name": self.name,
            "category": self.category,
            "summary": self.summary,
            "rationale": self.rationale,
            "fix": self.fix,
            "limits": self.limits,
            "severity": self.severity.label,
            "since": self.since,
            "stability": self.stability,
            "aliases": list(self.aliases),
            "needs": list(self.needs),
            "options": list(self.options),
            "tags": list(self.tags),
            "example": {"bad": self.example.bad, "good": self.example.good}
            if self.example
            else None,
        }
