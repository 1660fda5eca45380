"""Makes programs and windows for one replay: each try has a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..capturing.owners import FOUND
from ..store.reader import RunReader
from .fitting import fitted
from .habits import Habits
from .history import Segment
from .options import ReplayOptions
from .program import Program, program_of
from .tables import fingerprinter_for
from .window import Window

__all__ = ["Stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a run is replayed.

    Attributes:
        reader: of the run.
        options: what was asked for.
        given: the program, as it was given.
    """

    reader: RunReader
    options: ReplayOptions
    given: Mapping[str, object]

    @property
    def builds(self) -> bool:
        """Whether the program can be made anew, and not only be restored."""
        return self.given.get("build") is not None

    @property
    def unasked(self) -> frozenset[str]:
        """Extra state that the capture found by itself."""
        names = self.reader.header.policy.get(FOUND)
        return frozenset(map(str, names)) if isinstance(names, list) else frozenset()

    def anew(self, build: Callable[[], object] | None = None) -> Program:
        """Make the program, or that of another ``build``."""
        given = self.given if build is None else {"build": build}
        return fitted(program_of(given), self.reader, self.options.rank)

    def window(self, segment: Segment, program: Program, habits: Habits) -> Window:
        """Return what executes the steps of a segment."""
        found = fingerprinter_for(self.reader, program, self.options.rank, segment.number)
        return Window(self.reader, segment, program, found, habits)

    def traces_of(self, segment: Segment) -> Callable[[int], bool]:
        """Whether the modules of a step are to be compared."""
        return (segment.traces if self.options.localize else {}).__contains__
