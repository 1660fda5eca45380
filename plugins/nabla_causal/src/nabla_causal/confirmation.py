"""What a test of a hypothesis showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Confirmation", "Outcome", "standing"]

Outcome = Literal["confirmed", "refuted", "undecided"]

_WORDS = {"confirmed": "confirmed by", "refuted": "refuted by", "undecided": "not decided by"}
_STANDING: dict[Outcome, int] = {"confirmed": 0, "undecided": 1, "refuted": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """One test that was run.

    Attributes:
        test: what was done, e.g. ``"the batch of step 20 skipped"``.
        outcome: what follows from it for the hypothesis.
        reason: what was seen, with the numbers.
    """

    test: str
    outcome: Outcome
    reason: str

    def __str__(self) -> str:
        return f"{_WORDS[self.outcome]}: {self.test} ({self.reason})"

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"test": self.test, "outcome": self.outcome, "reason": self.reason}


def standing(confirmations: tuple[Confirmation, ...]) -> Outcome:
    """Return what all tests of a hypothesis together say: one that confirms is enough."""
    outcomes = [one.outcome for one in confirmations]
    return min(outcomes, key=_STANDING.__getitem__) if "confirmed" in outcomes else _worst(outcomes)


def _worst(outcomes: list[Outcome]) -> Outcome:
    return "refuted" if "refuted" in outcomes else "undecided"
