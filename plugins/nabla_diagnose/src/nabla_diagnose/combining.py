"""Several runs in one report: a table of verdicts, and every issue with its run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nabla_core.errors import InputError
from nabla_core.issue import Issue, Location
from nabla_core.report import NotEvaluated, Report, RunInfo, Section
from nabla_core.severity import Severity

from .linting import LintedRun, LintRequest, lint_log
from .readers.discovery import find_logs
from .run_report import RunReport

__all__ = ["combine", "lint_path", "verdict_of"]

_MAX_LABEL = 48
_MOST_DRAWN = 8


def combine(runs: Sequence[LintedRun]) -> RunReport:
    """Return one report of several runs; that of a single run stays as it is."""
    if len(runs) == 1:
        return runs[0].report
    reports = [run.report for run in runs]
    issues = [_placed(issue, run.label) for run in runs for issue in run.report.issues]
    used = sorted({rule for report in reports for rule in report.rules_used})
    first = reports[0]
    return RunReport(
        run=_info(reports),
        issues=tuple(issues),
        rules_used=tuple(used),
        not_evaluated=_not_evaluated(reports),
        allowed=tuple(entry for report in reports for entry in report.allowed),
        stale_baseline=_stale_everywhere(reports),
        causes=tuple(cause for report in reports for cause in report.causes),
        sections=(_table(runs), *_sections(runs)),
        problems=tuple(dict.fromkeys(one for report in reports for one in report.problems)),
        dropped=_dropped(reports),
        fail_on=first.fail_on,
        exit_code=max(report.exit_code for report in reports),
    )


def lint_path(text: str, request: LintRequest) -> RunReport:
    """Judge all runs of a log, a folder or a pattern, and return one report.

    Raises:
        InputError: there is no log, or a log that was named cannot be read.
    """
    linted: list[LintedRun] = []
    for found in find_logs([text]):
        try:
            linted += lint_log(found.path, request)
        except InputError:
            if found.named:
                raise
    if not linted:
        raise InputError(f"{text}: holds no log with a loss")
    return combine(linted)


def verdict_of(report: Report) -> str:
    """Return the verdict on a run in a few words: its worst issue."""
    if not report.issues:
        return "nothing found"
    worst = max(report.issues, key=lambda issue: issue.severity)
    step = "" if worst.step is None else f" at step {worst.step}"
    more = len(report.issues) - 1
    rest = f" (+{more} more)" if more else ""
    if worst.severity == Severity.INFO:
        step = ""
    return f"{worst.severity.label} {worst.rule} {worst.name}{step}{rest}"


def _placed(issue: Issue, label: str) -> Issue:
    return replace(issue, where=replace(issue.where or Location(), file=label))


def _table(runs: Sequence[LintedRun]) -> Section:
    labels = [_shortened(run.label) for run in runs]
    width = max(map(len, labels))
    lines = [f"{'run':<{width}}  {'rows':>8}  {'last loss':>10}  verdict"]
    for label, run in zip(labels, runs, strict=True):
        loss = f"{run.summary.last_loss:.4g}" if run.summary.rows else "-"
        verdict = verdict_of(run.report)
        lines.append(f"{label:<{width}}  {run.summary.rows:>8}  {loss:>10}  {verdict}")
    return Section(title=f"{len(runs)} runs", lines=tuple(lines))


def _sections(runs: Sequence[LintedRun]) -> list[Section]:
    """Return the parts of all reports; the plots of the first few runs, called by their run."""
    found = []
    for number, run in enumerate(runs):
        for part in run.report.sections:
            plots = part.plots if number < _MOST_DRAWN else ()
            if part.plots:
                part = replace(part, title=f"{_shortened(run.label)}: {part.title}", plots=plots)
            if part.plots or part.lines:
                found.append(part)
    return found


def _shortened(label: str) -> str:
    return label if len(label) <= _MAX_LABEL else f"...{label[-_MAX_LABEL + 3 :]}"


def _info(reports: Sequence[Report]) -> RunInfo:
    return replace(
        reports[0].run,
        duration_s=sum(report.run.duration_s for report in reports),
        steps=sum(report.run.steps for report in reports),
        source=f"{len(reports)} runs",
    )


def _not_evaluated(reports: Sequence[Report]) -> tuple[NotEvaluated, ...]:
    """Return the rules that no run allowed to decide, each with the first reason."""
    missing = [{entry.rule: entry for entry in report.not_evaluated} for report in reports]
    everywhere = set(missing[0]).intersection(*missing[1:])
    return tuple(missing[0][rule] for rule in sorted(everywhere))


def _stale_everywhere(reports: Sequence[Report]) -> tuple[str, ...]:
    others = [set(report.stale_baseline) for report in reports[1:]]
    return tuple(
        line for line in reports[0].stale_baseline if all(line in other for other in others)
    )


def _dropped(reports: Iterable[Report]) -> dict[str, int]:
    total: dict[str, int] = {}
    for report in reports:
        for kind, number in report.dropped.items():
            total[kind] = total.get(kind, 0) + number
    return total
