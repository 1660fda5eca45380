"""W&B: issues as alerts, and tables in the run that the person has started.

nabla starts no run, and never moves the step of the person's own: W&B drops what is logged to a
step that has passed. Hence no row of ours is committed while the run goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from nabla_core.severity import Severity

from .curves import curves_of
from .errors import NoActiveRunError
from .options import TrackerOptions
from .wording import COLUMNS, heading, row, story, verdict

if TYPE_CHECKING:
    from nabla_core.config import Config
    from nabla_core.issue import Issue
    from nabla_core.report import Report

__all__ = ["HostedRun", "WandbRun", "open_sink", "wandb"]

Cell = str | int | float | None


class WandbRun(Protocol):
    """The part of ``wandb.Run`` that is used."""

    @property
    def summary(self) -> MutableMapping[str, object]:
        """Last values by name."""

    def alert(self, title: str, text: str, level: str) -> None:
        """Tell somebody, as the person has set up."""

    def log(self, data: Mapping[str, object], *, commit: bool) -> None:
        """Add to the row of the present step."""


class HostedRun:
    """Sends to the W&B run that is active, or to a given one. Waits for a run that starts later.

    Args:
        run: send to this one.
        alert_from: alert somebody from this severity on; the tables have all issues.
    """

    def __init__(self, run: WandbRun | None, alert_from: Severity) -> None:
        self._given = run
        self._alert_from = alert_from
        self._waiting: list[Issue] = []

    def __call__(self, issue: Issue) -> None:
        """Alert somebody, now or when the run starts."""
        self._waiting.append(issue)
        run = self._given or _active()
        if run is not None:
            self._alert(run)

    def take_report(self, report: Report) -> None:
        """Write the outcome into the summary, and tables of the issues and of the curves.

        Raises:
            NoActiveRunError: there is no run, or it has ended.
        """
        run = self._given or _active()
        if run is None:
            raise NoActiveRunError(
                "no W&B run is active at the end of the watch, so its report was not sent; "
                "call wandb.init() before the training and run.finish() after it"
            )
        self._alert(run)
        run.summary["nabla/passed"] = report.passed
        run.summary["nabla/verdict"] = verdict(report)
        for label, number in report.counts.items():
            run.summary[f"nabla/issues/{label}"] = number
        curves: list[list[Cell]] = [
            [curve.key, step, value]
            for curve in curves_of(report)
            for step, value in zip(curve.steps, curve.values, strict=True)
        ]
        issues = [row(issue) for issue in report.issues]
        tables = {
            "nabla/issues": _table(COLUMNS, issues),
            "nabla/curves": _table(("curve", "step", "value"), curves),
        }
        run.log(tables, commit=False)

    def _alert(self, run: WandbRun) -> None:
        waiting, self._waiting = self._waiting, []
        for issue in waiting:
            if issue.severity >= self._alert_from:
                run.alert(title=heading(issue), text=story(issue), level=_level(issue.severity))


def wandb(run: WandbRun | None = None, alert_from: Severity = Severity.MEDIUM) -> HostedRun:
    """Return an ``on_alert`` that alerts through W&B.

    Args:
        run: send to this run; by default to the one that is active.
        alert_from: alert somebody from this severity on; the tables have all issues.

    Example::

        with wandb.init() as run:
            nabla.watch(model, optimizer, on_alert=nabla_trackers.wandb(run))
    """
    return HostedRun(run, alert_from)


def open_sink(config: Config) -> HostedRun:
    """Open the sink ``wandb``."""
    return HostedRun(None, config.options(TrackerOptions).alert_from)


def _active() -> WandbRun | None:
    """A program that has not imported wandb has no run: nothing is imported to know that."""
    client = sys.modules.get("wandb")
    return cast("WandbRun | None", getattr(client, "run", None))


def _level(severity: Severity) -> str:
    if severity >= Severity.HIGH:
        return "ERROR"
    return "WARN" if severity >= Severity.MEDIUM else "INFO"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> object:
    make = cast("Callable[..., object]", vars(sys.modules["wandb"])["Table"])
    # a run without steps has empty columns; cells may be text, a number or absent
    return make(columns=list(columns), data=[list(cells) for cells in rows], allow_mixed_types=True)
