"""What a bisection found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nabla_core.issue import Issue
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .diagnosis import Change
from .episodes import Episode

__all__ = ["BisectResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectResult(ResultMixin):
    """Where a run goes bad. It passes when no bad step was found and all were looked at.

    Attributes:
        run: folder of the run.
        issues: REP301 the first bad step, REP302 more than one episode, REP303 not decided.
        predicate: what makes a step bad, in words.
        first_bad_step: the first bad step; ``None`` if there is none, or if the run is not
            monotone and only ``interval`` is certain.
        last_good_step: the recorded step before it.
        interval: last step known to be good and first step known to be bad.
        episodes: all bad episodes of a recorded number.
        flips: steps of checkpoints at which a state predicate changes its answer.
        changes: between the last good and the first bad step.
        replayed_steps: steps that were executed again.
        probes: how often the predicate was asked.
        fail_on: severity from which it does not pass.
    """

    run: Path
    issues: tuple[Issue, ...]
    predicate: str
    first_bad_step: int | None = None
    last_good_step: int | None = None
    interval: tuple[int | None, int] | None = None
    episodes: tuple[Episode, ...] = ()
    flips: tuple[int, ...] = ()
    changes: tuple[Change, ...] = ()
    replayed_steps: int = 0
    probes: int = 0
    fail_on: Severity = Severity.MEDIUM

    @property
    def is_conclusive(self) -> bool:
        """Whether the answer can be relied on."""
        return not any(issue.rule == "REP303" for issue in self.issues)

    @property
    def passed(self) -> bool:
        """Whether every step was looked at, and is good."""
        return not self.failures and self.is_conclusive

    @property
    def is_monotone(self) -> bool:
        """Whether the run stays bad once it is bad, as far as was looked."""
        return (
            len(self.episodes) <= 1
            and len(self.flips) <= 1
            and not any(issue.rule == "REP302" for issue in self.issues)
        )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "run": str(self.run),
            "predicate": self.predicate,
            "first_bad_step": self.first_bad_step,
            "last_good_step": self.last_good_step,
            "interval": None if self.interval is None else list(self.interval),
            "episodes": [[one.first, one.last] for one in self.episodes],
            "flips": list(self.flips),
            "changes": {one.name: [one.before, one.after] for one in self.changes},
            "replayed_steps": self.replayed_steps,
            "probes": self.probes,
            "issues": [issue.to_dict() for issue in self.issues],
        }
