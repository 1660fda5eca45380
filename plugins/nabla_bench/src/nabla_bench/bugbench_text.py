"""The outcome of the planted bugs as a table."""

from __future__ import annotations

from nabla_core.reporters.style import Style

from .bugbench import BugBench, Outcome, Verdict

__all__ = ["bugbench_text"]

_COLOURS = {Verdict.CAUGHT: "good", Verdict.NOT_EVALUATED: "dim"}


def bugbench_text(bench: BugBench, style: Style) -> str:
    """Return the table and, below it, the sum."""
    lines = [_line(outcome, style) for outcome in bench.outcomes]
    seconds = sum(outcome.seconds for outcome in bench.outcomes)
    lines += ["", f"{_sum(bench)} (seed {bench.seed}, {seconds:.0f} s)"]
    return "\n".join(lines) + "\n"


def _line(outcome: Outcome, style: Style) -> str:
    bug, verdict = outcome.bug, outcome.verdict
    shown = style.paint(f"{verdict.value:<14}", _COLOURS.get(verdict, "high"))
    line = f"{shown}{bug.rule:<7} {bug.name:<23} {bug.summary}"
    return "\n".join([line.rstrip(), *(f"{'':<22}{note}" for note in _notes(outcome))])


def _notes(outcome: Outcome) -> list[str]:
    notes = []
    if outcome.reason:
        notes.append(outcome.reason)
    if outcome.verdict is Verdict.WRONG_RULE:
        notes.append(f"found {', '.join(outcome.found)} instead")
    elif outcome.besides:
        notes.append(f"also found {', '.join(outcome.besides)}")
    if outcome.alarms:
        notes.append(f"its healthy twin raises {', '.join(outcome.alarms)}")
    return notes


def _sum(bench: BugBench) -> str:
    text = f"{bench.count(Verdict.CAUGHT)} of {bench.evaluated} planted bugs caught"
    others = (Verdict.MISSED, Verdict.WRONG_RULE, Verdict.FALSE_ALARM, Verdict.CRASHED)
    counts = [(bench.count(verdict), verdict.value) for verdict in others]
    text += "".join(f", {count} {name}" for count, name in counts if count)
    if not bench.count(Verdict.FALSE_ALARM):
        text += ", no alarm on a healthy twin"
    skipped = bench.count(Verdict.NOT_EVALUATED)
    return text + (f", {skipped} not evaluated" if skipped else "")
