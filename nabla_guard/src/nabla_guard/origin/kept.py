"""What is kept in one thread of the present step, and in which part of the step the thread is."""

from __future__ import annotations

import threading
import weakref

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from .ambient import Generators
from .loaded import Deliveries
from .op_note import OpNote
from .recorder import StepRecorder
from .region import Region
from .root_state import RootState
from .shorthand import BackwardNote, CallNote
from .tape import BackwardEntry, Tape

__all__ = ["Entered", "Kept", "PerThread"]

_LOSS, _PREPARATION = Region.LOSS, Region.PREPARATION  # a look-up in the class takes a while
_MAX_OPS = 2048
_MAX_EARLY_OPS = 256
_QUIET_STEPS = 8
_LISTEN_AGAIN_STEPS = 64

Entered = tuple[Module, RootState, Generators | None, list[int], bool]
"""A call of a root module that has not returned yet: the module, what is known of it, the random
states, the versions of its arguments and whether gradients are on."""


Note = CallNote | BackwardNote | OpNote


class Kept:
    """What is kept in one thread.

    Attributes:
        brief: calls are noted as they are where that is enough: most steps end well.
        later: the newest events of the step, to be written on the tape when somebody looks at it.
        recorder: notes the user's own calls.
        roots: parameters and copies of buffers, by root module.
        only: the one optimizer that steps, as far as known.
        marks: number of the tape at which each optimizer has last stepped.
        since: number of the tape at the last backward pass that no step followed.
        replaying: a step is being executed again in this thread.
        in_backward: a backward pass is being watched in this thread.
        depth: pauses that have not ended.
        region: the present part of the step.
        worth: whether the user's code may call torch in it; it never did so in the last steps.
        quiet: steps in a row in which the user's code called nothing in a part.
        overflows: steps that had too many calls to keep.
        entered: the call of a root module that runs.
        transforms: derivatives that ``torch.func`` has taken so far.
        loaded: the latest batches of loaders that make them by many calls.
    """

    __slots__ = (
        "_noted",
        "_ops",
        "_tape",
        "brief",
        "depth",
        "entered",
        "in_backward",
        "later",
        "loaded",
        "marks",
        "only",
        "overflows",
        "quiet",
        "recorder",
        "region",
        "replaying",
        "roots",
        "since",
        "transforms",
        "worth",
    )

    def __init__(self) -> None:
        self._tape = Tape()
        self.brief = False
        self.later: list[Note] = []
        self.recorder = StepRecorder(self)
        self.roots: dict[int, RootState] = {}
        self.only: weakref.ref[Optimizer] | None = None
        self.marks: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self.since = 0
        self.replaying = False
        self.in_backward = False
        self.depth = 0
        self.region = Region.PREPARATION
        self.worth = True
        self.quiet = [0, 0, 0]
        self.overflows = 0
        self.transforms = 0
        self.entered: Entered | None = None
        self.loaded = Deliveries()
        self._ops = self._noted = 0

    def take_over(self, before: Kept) -> None:
        """Begin with what was known in an earlier session; the first step looks at it all again.

        Args:
            before: what was kept then; only what holds for the modules and the habits of the
                user's code is taken.
        """
        known = before.roots.items()
        self.roots = {key: state for key, state in known if state.root() is not None}
        for state in self.roots.values():
            state.rest()
        self.quiet = [min(steps, _QUIET_STEPS - 1) for steps in before.quiet]
        self.only = before.only

    @property
    def tape(self) -> Tape:
        """Entries since the last step."""
        if self.later:
            later, self.later[:] = tuple(self.later), ()
            try:
                for note in later:
                    note.write(self._tape)
            except Exception as error:
                self._tape.problem(f"{type(error).__name__} while writing out a call: {error}")
        return self._tape

    @property
    def noted(self) -> int:
        """How much was noted since the last step."""
        return len(self._tape.entries) + len(self.later)

    def has_call_of(self, module: Module) -> bool:
        """Whether a module was called since the last step."""
        for note in self.later:
            if isinstance(note, CallNote) and note.module is module:
                return True
        return self._tape.has_call_of(module)

    @property
    def has_pass(self) -> bool:
        """Whether there was a backward pass since the last step."""
        if self.later and any(isinstance(note, BackwardNote) for note in self.later):
            return True
        entries = self._tape.entries
        return bool(entries) and any(isinstance(entry, BackwardEntry) for entry in entries)

    def note_gradient(self, leaf: Tensor, grad: Tensor) -> None:
        """The gradient of a leaf was read; what came before need not be written out for that."""
        self._tape.note_gradient(leaf, grad)

    def forget_step(self) -> None:
        """The only optimizer has stepped: nothing that came before is needed any more."""
        self.later.clear()
        self._tape.clear()

    def end_region(self, following: Region) -> None:
        """Go on to the next part of the step."""
        region, quiet = self.region, self.quiet
        if region is not _LOSS:
            quiet[region] = 0 if self._noted and self.worth else quiet[region] + 1
        self.region = following
        self._noted = 0
        silent = quiet[following]
        self.worth = silent < _QUIET_STEPS or not silent % _LISTEN_AGAIN_STEPS

    def pass_on(self) -> None:
        """The only optimizer has stepped: forget the step, and begin the next one."""
        self.later.clear()
        self._tape.clear()
        self.end_region(_PREPARATION)
        self._ops = self._noted = 0

    def begin_step(self) -> None:
        """Count the noted calls of a new step."""
        self._ops = self._noted = 0

    def count(self) -> None:
        """Bound the number of noted calls, so that a long preparation of data costs nothing."""
        self._ops += 1
        self._noted += 1
        early = self.region is Region.PREPARATION
        if self._ops > (_MAX_EARLY_OPS if early else _MAX_OPS):
            self.overflows += 1
            self.recorder.leave_stack()
            if early:
                self.tape.clear()
            else:
                self.tape.problem(f"more than {_MAX_OPS} calls outside of modules in one step")


class PerThread(threading.local):
    """Gives each thread what is kept in it.

    Attributes:
        kept: of the calling thread.
    """

    def __init__(self) -> None:
        self.kept = Kept()
