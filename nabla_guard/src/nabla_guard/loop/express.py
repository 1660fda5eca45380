"""The shortest way through the doors of torch in a calm step.

On a small model every call of Python counts. Where :class:`.quick.QuickStep` follows a loop, a door
asks the express first: it does what the door, the keeper and the loop would have done one after the
other, and leaves everything as they would have left it. Whatever is not quite like the steps before
it declines, and the door goes the long way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from threading import get_ident
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch.nn import Module
from torch.optim import Optimizer

from ..origin.ambient import Ambient, ambient_now
from ..origin.keeper import MAX_OVERFLOWS
from ..origin.region import Region
from ..origin.shorthand import BackwardNote, CallNote, Spot, draw_state, spot_above
from ..taps.inside import NOBODY
from ..taps.instrument import INSTRUMENT
from ..taps.place import Line
from ..taps.transforms import in_transform
from ..taps.wire import DECLINED
from .stops import Stop

if TYPE_CHECKING:
    from ..taps.forward import Running
    from .live import LiveLoop
    from .quick import QuickStep

__all__ = ["Express"]

_LOSS, _UPDATE = Region.LOSS, Region.UPDATE
_PLAIN = frozenset({Tensor})
_GRADED = Ambient(True)
_NOTHING: Mapping[str, object] = {}
_version = attrgetter("_version")
_new = tuple.__new__  # what a named tuple's own way costs twice
_frame = sys._getframe
_Begun = tuple[object, ...]
_DOORS = 4  # this many of the innermost functions are ours
_is_autocast = torch._C._is_any_autocast_enabled
_is_recording = torch.is_grad_enabled
_tracing = torch._C._get_tracing_state
_current_task = torch._C._current_graph_task_id


class Express:
    """Takes the calls of one thread through a calm step.

    Args:
        loop: the loop that is watched, calm and alone.
        quick: follows its steps.
    """

    __slots__ = (
        "_heard_calls",
        "_heard_passes",
        "_here",
        "_keeper",
        "_kept",
        "_loop",
        "_put_off",
        "_quick",
        "_running",
        "_stops",
        "_tape",
        "_thread",
    )

    def __init__(self, loop: LiveLoop, quick: QuickStep) -> None:
        self._loop = loop
        self._quick = quick
        self._thread = get_ident()
        self._keeper = INSTRUMENT.keeper
        self._kept = INSTRUMENT.keeper.kept
        self._tape = self._kept.tape
        self._kept.brief = True
        self._here = loop.layers.gatherer()
        self._put_off = loop.pending.traffic.put_off
        self._heard_calls = loop.watches.listens("forward_ended")
        self._heard_passes = loop.watches.listens("backward_started")
        self._stops: dict[int, Stop] = {}
        self._running: Running | None = None

    @staticmethod
    def suits(loop: LiveLoop) -> bool:
        """Whether the doors have nobody to tell but this loop, and nobody looks closely."""
        alone = INSTRUMENT.has_only(loop) and INSTRUMENT.keeper.enabled
        open_wide = loop.layers.unasked and not loop.layers.whole
        return alone and open_wide and not loop.attentive

    # ------------------------------------------------------------------ the doors
    def call(
        self,
        original: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        running: Running,
    ) -> object:
        """Call a root module; ``DECLINED`` when it was not called."""
        stop = self._stops.get(id(module)) or self._meet(module)
        if stop is None or stop.ref() is not module:
            return DECLINED
        try:
            begun = self._begin(stop, module, args)
        except Exception:
            return DECLINED  # it will happen again on the long way, where it is reported
        if begun is None:
            return DECLINED
        kept, here = self._kept, self._here
        kept.depth += 1
        self._running = running
        running.inside = NOBODY if here is None or not (stop.seen and self._loop.due) else here
        try:
            output = original(module, *args)
        except BaseException:
            running.inside = None
            self._listen()
            raise
        running.inside = None
        if output is not None:
            kept.later.append(_new(CallNote, (*begun, output)))
            if stop.root is not None:
                self._put_off(stop.root, args, _NOTHING, output)
                if self._heard_calls:
                    self._loop.watches.called(stop.root, module, args, output)
            elif stop.told:
                self._tell(module, args, output)
        self._listen()
        return output

    def backward(
        self,
        original: Callable[..., object],
        roots: Sequence[Tensor],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Run an accumulating backward pass; ``DECLINED`` when it was not run."""
        kept = self._kept
        if (
            get_ident() != self._thread
            or not self._keeper.enabled
            or kept.replaying
            or kept.in_backward
            or len(roots) != 1
            or type(roots[0]) is not Tensor
            or any(args[1:])  # a graph that is kept, one that is made, only some inputs
            or _current_task() != -1
            or in_transform()
        ):
            return DECLINED
        if kept.recorder.on:
            kept.recorder.leave_stack()
        kept.in_backward = True
        kept.depth += 1
        ambient = ambient_now() if _is_autocast() or not _is_recording() else _GRADED
        kept.later.append(
            _new(BackwardNote, (spot_above(_DOORS - 1), ambient, roots, args, kwargs))
        )
        if kept.region is _LOSS:
            kept.end_region(_UPDATE)
        try:
            if self._heard_passes:
                self._loop.watches.backward_started(roots)
            gradients = original(roots, *args, **kwargs)
            self._written(roots)
        finally:
            kept.in_backward = False
            self._listen()
        return gradients

    def clear(
        self,
        original: Callable[..., object],
        owner: Optimizer | Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Clear gradients; ``DECLINED`` when it was not done."""
        kept, quick = self._kept, self._quick
        if (
            quick.optimizer() is not owner
            or get_ident() != self._thread
            or not self._keeper.enabled
            or kept.replaying
            or kept.depth
            or ((kept.later or self._tape.entries) and kept.has_pass)  # it is forgotten now
        ):
            return DECLINED
        recorder, heard = kept.recorder, kept.recorder.on
        if heard:
            recorder.leave_stack()
        try:
            outcome = original(owner, *args, **kwargs)
            self._cleared(owner)
        finally:
            if heard and not recorder.on:
                recorder.enter_stack()
        return outcome

    def step(self, optimizer: Optimizer) -> bool:
        """Close a step that is about to run; return whether it is dealt with."""
        kept, running = self._kept, self._running
        if get_ident() != self._thread or not self._keeper.enabled or kept.replaying:
            return False
        if running is None or running.inside is not None:
            return False  # that one never returned
        if kept.recorder.on:
            kept.recorder.leave_stack()
        kept.depth = 1
        try:
            return self._quick.step(optimizer)
        except Exception:
            return False  # it will happen again on the long way, where it is reported

    def ended(self, optimizer: Optimizer) -> bool:
        """Begin the next step; return whether that is dealt with."""
        kept, keeper = self._kept, self._keeper
        if get_ident() != self._thread or not keeper.enabled or kept.replaying:
            return False
        if kept.only is None or kept.only() is not optimizer:
            return False
        try:
            self._loop.step_ended(optimizer, False)
        except Exception as error:
            INSTRUMENT.drop(self._loop, error)
        if keeper.enabled:
            kept.pass_on()
            self._listen()
        return True

    # ------------------------------------------------------------------ private
    def _meet(self, module: Module) -> Stop | None:
        state = self._kept.roots.get(id(module))
        if state is None or state.root() is not module:
            return None
        root = self._quick.roots.get(id(module))
        if state.stale:
            state.look_again()
        seen = self._loop.scope.has_module(module)
        stop = self._stops[id(module)] = Stop(module, state, root, seen)
        return stop

    def _begin(self, stop: Stop, module: Module, args: tuple[object, ...]) -> _Begun | None:
        """A root is about to run: note what will be gone afterwards; ``None`` to decline."""
        kept, state = self._kept, stop.state
        if (
            stop.training is not module.training
            or get_ident() != self._thread
            or not self._keeper.enabled
            or kept.replaying
            or not _is_recording()
            or _current_task() != -1
            or in_transform()
            or _len_torch_dispatch_stack()
        ):
            return None
        if kept.recorder.on:
            kept.recorder.leave_stack()  # before any tensor is looked at
        if self._here is not None and stop.seen:
            if _len_torch_function_stack() or _tracing() is not None:
                return None
            self._here.enter(module)
        if not _PLAIN.issuperset(map(type, args)):
            return None
        versions = [*map(_version, args)]  # raises where there is none
        version = state.version() if state.has_parameters else 0
        drawn = draw_state() if state.draws else None  # not where nothing can draw
        if not state.plain:
            if kept.region is not _LOSS:
                kept.end_region(_LOSS)
            if state.has_buffers and not kept.has_call_of(module):
                state.keep_buffers()
        frame = _frame(_DOORS - 1)
        spot = (stop.code, frame.f_lasti) if frame.f_code is stop.code else self._spot(stop)
        ambient = ambient_now() if _is_autocast() else _GRADED
        return spot, ambient, module, state, stop.training, args, versions, drawn, version

    @staticmethod
    def _spot(stop: Stop) -> Spot:
        """Find the line that calls a root, and its function for the next time."""
        spot = spot_above(_DOORS + 1)
        if spot is not None and not isinstance(spot, Line):
            stop.code = spot[0]
        return spot

    def _listen(self) -> None:
        """What the keeper's ``resume`` does: note the user's own calls again."""
        kept = self._kept
        if kept.depth > 1:
            kept.depth -= 1
            return
        kept.depth = 0
        if not kept.worth or kept.recorder.on or not self._keeper.enabled:
            return
        if kept.overflows < MAX_OVERFLOWS:
            kept.recorder.enter_stack()

    def _tell(self, module: Module, args: tuple[object, ...], output: object) -> None:
        try:
            self._loop.forward_ended(module, args, _NOTHING, output)
        except Exception as error:
            INSTRUMENT.drop(self._loop, error)

    def _cleared(self, owner: Optimizer | Module) -> None:
        loop, quick, here = self._loop, self._quick, self._here
        try:
            if loop.calm.quick is not quick:
                loop.gradients_cleared(owner)
                return
            if here is not None:
                here.drop_marked()
            quick.cleared()
        except Exception as error:
            INSTRUMENT.drop(loop, error)

    def _written(self, roots: Sequence[Tensor]) -> None:
        loop, quick, here = self._loop, self._quick, self._here
        try:
            if loop.calm.quick is not quick:
                loop.backward_ended(roots)
                return
            loop.backwards += 1
            if here is not None:
                here.mark()
            quick.written(roots, loop.backwards)
        except Exception as error:
            INSTRUMENT.drop(loop, error)
