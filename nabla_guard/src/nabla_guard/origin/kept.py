"""What is kept in one thread of the present step, and in which part of the step the thread is."""

from __future__ import annotations

import threading
import weakref
from typing import NamedTuple

from torch.nn import Module
from torch.optim import Optimizer

from .ambient import Generators
from .recorder import StepRecorder
from .region import Region
from .root_state import RootState
from .tape import Tape

__all__ = ["Entered", "Kept"]

_MAX_OPS = 2048
_MAX_EARLY_OPS = 256
_QUIET_STEPS = 8
_LISTEN_AGAIN_STEPS = 64


class Entered(NamedTuple):
    """A call of a root module that has not returned yet."""

    module: Module
    state: RootState
    generators: Generators | None
    versions: tuple[int, ...]


class Kept(threading.local):
    """What is kept in one thread.

    Attributes:
        tape: entries since the last step.
        recorder: notes the user's own calls.
        roots: parameters and copies of buffers, by root module.
        only: the one optimizer that steps, as far as known.
        marks: number of the tape at which each optimizer has last stepped.
        since: number of the tape at the last backward pass that no step followed.
        replaying: a step is being executed again in this thread.
        in_backward: a backward pass is being watched in this thread.
        region: the present part of the step.
        quiet: steps in a row in which the user's code called nothing in a part.
    """

    def __init__(self) -> None:
        self.tape = Tape()
        self.recorder = StepRecorder(self)
        self.roots: dict[int, RootState] = {}
        self.only: weakref.ref[Optimizer] | None = None
        self.marks: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self.since = 0
        self.replaying = False
        self.in_backward = False
        self.depth = 0
        self.ops = 0
        self.region = Region.PREPARATION
        self.noted = 0
        self.quiet = {Region.PREPARATION: 0, Region.UPDATE: 0}
        self.overflows = 0
        self.entered: Entered | None = None

    @property
    def is_worth_noting(self) -> bool:
        """Whether the user's code may call torch now; it never did so here in the last steps."""
        quiet = self.quiet.get(self.region, 0)
        return quiet < _QUIET_STEPS or quiet % _LISTEN_AGAIN_STEPS == 0

    def end_region(self, following: Region) -> None:
        """Go on to the next part of the step."""
        if self.region in self.quiet:
            worth = self.is_worth_noting
            self.quiet[self.region] = 0 if self.noted and worth else self.quiet[self.region] + 1
        self.region = following
        self.noted = 0

    def count(self) -> None:
        """Bound the number of noted calls, so that a long preparation of data costs nothing."""
        self.ops += 1
        self.noted += 1
        early = self.region is Region.PREPARATION
        if self.ops > (_MAX_EARLY_OPS if early else _MAX_OPS):
            self.overflows += 1
            self.recorder.leave_stack()
            if early:
                self.tape.clear()
            else:
                self.tape.problem(f"more than {_MAX_OPS} calls outside of modules in one step")
