"""What is found while a run is captured: kept, written into its log, and told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from nabla_core.artifacts.strict_json import JsonValue
from nabla_core.issue import Issue
from nabla_core.redaction import redact_tree
from nabla_core.report import NotEvaluated
from nabla_core.session import Session, current_session
from nabla_core.severity import Severity

from ..failures.links import RunLink, link_run
from ..rules import CAPTURE_DEGRADED
from ..store.entries import NoteEntry
from .contracts import HeldContracts, WantedContracts
from .parts import Parts

__all__ = ["ISSUE_NOTE", "Verdicts"]

ISSUE_NOTE = "issue"
"""A verdict; it stands in the log between the steps before and after it was found."""

_MOST_NOTES = 200

Write = Callable[[NoteEntry], object]


class Verdicts:
    """Collects the issues of one capture, its own ones and those of the session around it.

    Args:
        wanted: contracts to hold.

    Attributes:
        issues: of the capture itself and of its contracts, each once.
        not_evaluated: what was asked for and could not be judged.
    """

    def __init__(self, wanted: WantedContracts) -> None:
        self.issues: tuple[Issue, ...] = ()
        self.not_evaluated: tuple[NotEvaluated, ...] = ()
        self._wanted = wanted
        self._around: Session | None = None
        self._held: HeldContracts | None = None
        self._write: Write | None = None
        self._link = RunLink(folder=Path())
        self._noted = 0
        self._first = 0

    def listen(self, write: Write, folder: Path, rank: int) -> None:
        """Write down from now on what is found.

        Args:
            write: appends to the log of the run.
            folder: of the run.
            rank: whose log it is.
        """
        self._write = write
        self._link = RunLink(folder=folder.absolute(), rank=rank)
        self.follow()

    def recorded(self, step: int) -> None:
        """A step was recorded; see how the session around the capture counts it."""
        if self._around is not None:
            self._link.note(self._around.last_step, step)

    def follow(self) -> None:
        """Find the session around the program, which may begin inside the capture."""
        if self._around is not None:
            return
        session = current_session()
        if session is None or (self._held is not None and session is self._held.session):
            return
        self._around = session
        link_run(session, self._link)
        for issue in session.issues:
            self._note(issue)
        session.subscribe(self._note)

    def hold(self, parts: Parts, first: int) -> None:
        """Begin to judge by the contracts.

        Args:
            parts: the program.
            first: number of the step that comes next.
        """
        if self._wanted:
            self._first = first
            self._held = HeldContracts(parts, self._wanted, self._broken)
            self._held.start()

    def let_go(self) -> None:
        """Judge the whole run by the contracts, and let go of torch."""
        held, self._held = self._held, None
        if held is not None:
            held.stop()
            self.not_evaluated = held.not_evaluated

    def close(self) -> None:
        """Write nothing down any more."""
        self._write = None

    def tell(self, issue: Issue) -> None:
        """Keep an issue of the capture, each once; hand it on, or say it on standard error."""
        if any(known.message == issue.message for known in self.issues):
            return
        self.issues = (*self.issues, issue)
        session = current_session()
        if session is not None and (self._held is None or session is not self._held.session):
            session.add(issue)
        elif self._around is not None:
            self._around.add(issue)
        else:
            self._say(issue)

    # ------------------------------------------------------------------ private
    def _broken(self, issue: Issue) -> None:
        """A contract does not hold; the session around the capture has heard of it by itself."""
        step = None if issue.step is None else issue.step + self._first
        self.issues = (*self.issues, replace(issue, step=step))
        if self._around is None:
            self._say(self.issues[-1])

    def _say(self, issue: Issue) -> None:
        self._note(issue)
        if issue.severity > Severity.INFO:
            print(f"nabla: {issue.rule} {issue.name}: {issue.message}", file=sys.stderr)

    def _note(self, issue: Issue) -> None:
        if self._write is None or issue.severity <= Severity.INFO or self._noted >= _MOST_NOTES:
            return
        if issue.rule == CAPTURE_DEGRADED.id:
            return  # nothing may be written because something could not be written
        self._noted += 1
        body = cast("JsonValue", redact_tree(issue.to_dict()))
        self._write(NoteEntry(name=ISSUE_NOTE, body=body))
