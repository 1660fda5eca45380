"""Which captured run a session belongs to, and which of its steps an issue is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from nabla_core.issue import Issue
    from nabla_core.session import Session

__all__ = ["RunLink", "link_of", "link_run"]


@dataclass(slots=True, kw_only=True)
class RunLink:
    """The run that is captured while a session watches.

    A session and a capture count steps by themselves; they belong together as long as the
    difference between their counts stays the same.

    Attributes:
        folder: of the run.
        rank: whose part of it.
        shift: what to add to a step of the session; ``None`` while it is not known.
        is_certain: whether it was the same at all steps so far.
    """

    folder: Path
    rank: int = 0
    shift: int | None = None
    is_certain: bool = True

    def note(self, watched: int, recorded: int) -> None:
        """A step was recorded.

        Args:
            watched: the latest step of the session.
            recorded: its number in the run.
        """
        shift = recorded - watched
        if self.shift is not None and shift != self.shift:
            self.is_certain = False
        self.shift = shift

    def step_of(self, issue: Issue) -> int | None:
        """Return the step of the run that an issue is about, as far as that is certain."""
        if issue.step is None or self.shift is None or not self.is_certain:
            return None
        return max(issue.step + self.shift, 0)


_links: WeakKeyDictionary[Session, RunLink] = WeakKeyDictionary()


def link_run(session: Session, link: RunLink) -> None:
    """Remember the run that is captured while ``session`` watches; the latest one counts."""
    _links[session] = link


def link_of(session: Session) -> RunLink | None:
    """Return what :func:`link_run` was told."""
    return _links.get(session)
