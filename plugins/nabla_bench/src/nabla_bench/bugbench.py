"""``nabla bench bugbench``: every planted bug must be found, and none where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nabla_core.errors import UsageError
from nabla_core.facade import public_name
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.severity import Severity

from .bug import Bug
from .bugs import BUGS

__all__ = ["BugBench", "Outcome", "Verdict", "chosen_bugs", "run_bugbench"]

Progress = Callable[[Bug], None]


class Verdict(StrEnum):
    """What became of one planted bug."""

    CAUGHT = "caught"
    MISSED = "missed"
    WRONG_RULE = "wrong rule"
    FALSE_ALARM = "false alarm"
    CRASHED = "crashed"
    NOT_EVALUATED = "not evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One planted bug and what was said of it.

    Attributes:
        bug: the bug.
        verdict: what became of it.
        found: rules that spoke, above information, of the program with the fault.
        alarms: the same of its healthy twin; must be empty.
        reason: why it was not evaluated, or how it crashed.
        seconds: wall time of both programs.
    """

    bug: Bug
    verdict: Verdict
    found: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def besides(self) -> tuple[str, ...]:
        """Rules that spoke of the fault and are not known to do so rightly."""
        right = {self.bug.rule, *self.bug.also}
        return tuple(rule for rule in self.found if rule not in right)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "bug": self.bug.name,
            "rule": self.bug.rule,
            "verdict": self.verdict.value,
            "found": list(self.found),
            "alarms": list(self.alarms),
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BugBench:
    """What became of all planted bugs.

    Attributes:
        seed: of the data of every program.
        outcomes: one per bug, in the order in which they were run.
    """

    seed: int
    outcomes: tuple[Outcome, ...]

    def count(self, verdict: Verdict) -> int:
        """Return how many bugs met this fate."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)

    @property
    def evaluated(self) -> int:
        """How many bugs were run."""
        return len(self.outcomes) - self.count(Verdict.NOT_EVALUATED)

    @property
    def passed(self) -> bool:
        """Whether every bug that was run was caught, and no twin raised an alarm."""
        return self.count(Verdict.CAUGHT) == self.evaluated

    @property
    def exit_code(self) -> int:
        """0, 1 when anything went wrong, 4 when nothing was evaluated."""
        if not self.evaluated:
            return 4
        return 0 if self.passed else 1

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "benchmark": "bugbench",
            "seed": self.seed,
            "passed": self.passed,
            "counts": {verdict.value: self.count(verdict) for verdict in Verdict},
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }

    def format(self) -> str:
        """Return the table that :meth:`print` shows."""
        from nabla_core.reporters.style import Style

        from .bugbench_text import bugbench_text

        return bugbench_text(self, Style())

    def print(self) -> None:
        """Print the table to standard output."""
        print(self.format(), end="")


def run_bugbench(
    only: Iterable[str] = (), *, seed: int = 0, progress: Progress | None = None
) -> BugBench:
    """Run the planted bugs and their healthy twins.

    Args:
        only: names of bugs, IDs of rules, or beginnings of IDs; all when empty.
        seed: of the data of every program.
        progress: called with each bug before it is run.

    Raises:
        UsageError: ``only`` chooses nothing.
    """
    from .loading import Shelf
    from .surroundings import own_surroundings

    outcomes = []
    chosen = chosen_bugs(only)
    with own_surroundings() as folder:
        shelf = Shelf(folder)
        try:
            for bug in chosen:
                if progress is not None:
                    progress(bug)
                outcomes.append(_judged(bug, seed, shelf.program))
        finally:
            shelf.close()
    return BugBench(seed=seed, outcomes=tuple(outcomes))


def chosen_bugs(only: Iterable[str]) -> Sequence[Bug]:
    """Return the bugs with one of these names, or whose rule begins so; all if none is given.

    Raises:
        UsageError: a choice fits none.
    """
    from nabla_core.binder import closest

    wanted = list(only)
    if not wanted:
        return BUGS
    for text in wanted:
        if not any(_fits(bug, text) for bug in BUGS):
            names = [bug.name for bug in BUGS] + [bug.rule for bug in BUGS]
            raise UsageError(
                f"--only {text}: no planted bug has this name{closest(text, names)}; give a name "
                f"or a rule, e.g. {BUGS[0].name} or {BUGS[0].rule}"
            )
    return [bug for bug in BUGS if any(_fits(bug, text) for text in wanted)]


def _fits(bug: Bug, text: str) -> bool:
    return bug.name == text or (len(text) >= 3 and bug.rule.startswith(text.upper()))


def _judged(bug: Bug, seed: int, program_of: Callable[[Bug], Callable[..., object]]) -> Outcome:
    reason = _missing(bug)
    if reason:
        return Outcome(bug=bug, verdict=Verdict.NOT_EVALUATED, reason=reason)
    started_s = time.perf_counter()
    try:
        program = program_of(bug)
        alarms, found = _spoken(program, seed, False), _spoken(program, seed, True)
    except Exception as error:  # one broken program must not hide the others
        reason = f"{type(error).__name__}: {error}"
        spent_s = time.perf_counter() - started_s
        return Outcome(bug=bug, verdict=Verdict.CRASHED, reason=reason, seconds=spent_s)
    return Outcome(
        bug=bug,
        verdict=_verdict(bug, found, alarms),
        found=found,
        alarms=alarms,
        seconds=time.perf_counter() - started_s,
    )


def _missing(bug: Bug) -> str:
    """Why the bug cannot be judged here; empty if it can."""
    for name in bug.needs:
        try:
            public_name(name)
        except ModuleNotFoundError as error:
            return str(error)
    if default_host().registry.get(bug.rule) is None:
        return f"no loaded plugin has the rule {bug.rule}; see nabla plugins"
    return ""


def _spoken(program: Callable[..., object], seed: int, fault: bool) -> tuple[str, ...]:
    from .toolbox import Toolbox

    found = program(Toolbox(seed), fault)
    issues = found if isinstance(found, tuple) else ()
    return tuple(dict.fromkeys(issue.rule for issue in issues if _counts(issue)))


def _counts(issue: object) -> bool:
    return isinstance(issue, Issue) and issue.severity > Severity.INFO


def _verdict(bug: Bug, found: tuple[str, ...], alarms: tuple[str, ...]) -> Verdict:
    if alarms:
        return Verdict.FALSE_ALARM
    if bug.rule in found:
        return Verdict.CAUGHT
    return Verdict.WRONG_RULE if found else Verdict.MISSED
