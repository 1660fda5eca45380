"""Keeps what is needed to execute the present step again: the hot path of the origin.

Per thread one tape and one recorder. The instrument tells when root modules, backward passes and
optimizer steps begin and end; in between, outside of them, the recorder notes the user's own calls.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..taps.place import user_line
from .ambient import ambient_now, generators_now
from .kept import Entered, Kept, PerThread
from .nested import leaves
from .parts import is_pass
from .region import Region
from .root_state import RootState
from .shorthand import draw_state
from .tape import BackwardEntry, CallEntry, Tape

__all__ = ["MAX_OVERFLOWS", "Keeper"]

_MAX_UNGRADED_CALLS = 4
MAX_OVERFLOWS = 3
"""Steps with too many calls to keep, after which the user's own calls are noted no more."""
_MAX_OPTIMIZERS = 8


Params = ParamSpec("Params")
ResultT = TypeVar("ResultT")


def _quietly(
    method: Callable[Concatenate[Keeper, Params], None],
) -> Callable[Concatenate[Keeper, Params], None]:
    """Keep nothing from now on when keeping fails: the training must not notice."""

    @functools.wraps(method)
    def wrapper(keeper: Keeper, /, *args: Params.args, **kwargs: Params.kwargs) -> None:
        if keeper.enabled:
            try:
                method(keeper, *args, **kwargs)
            except Exception as error:
                keeper._give_up(error)

    return wrapper


class Keeper:
    """Notes the present step of each thread while :attr:`enabled`.

    Attributes:
        enabled: whether anything is kept.
        failure: why nothing is kept any more.
        threads: what is kept, by thread.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.failure: Exception | None = None
        self.threads = PerThread()
        keeper = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forked(keeper))

    @property
    def kept(self) -> Kept:
        """What is kept in the calling thread."""
        return self.threads.kept

    @property
    def replaying(self) -> bool:
        """Whether the calling thread is executing a step again: nothing of it may be counted."""
        return self.threads.kept.replaying

    def start(self) -> None:
        """Keep what happens from now on, in the calling thread from this moment."""
        if not self.enabled:
            self.enabled = True
            self._renew()
            self.resume()

    def stop(self) -> None:
        """Let go of everything."""
        self.enabled = False
        self.threads.kept.recorder.leave_stack()
        self._renew()

    def expire(self) -> None:
        """Calls of root modules have passed unseen: read their lists again at the next ones."""
        kept = self.threads.kept
        kept.brief = False
        for state in kept.roots.values():
            state.stale = True

    def _renew(self) -> None:
        """Forget the steps, in all threads."""
        before, self.threads = self.threads.kept, PerThread()
        self.threads.kept.take_over(before)

    # ------------------------------------------------------------------ pauses
    def pause(self) -> None:
        """Stop noting calls: a module, a backward pass or a step of an optimizer begins."""
        if not self.enabled:
            return
        kept = self.threads.kept
        kept.depth += 1
        recorder = kept.recorder
        if recorder.on or recorder.leftover:
            recorder.leave_stack()

    def resume(self) -> None:
        """Note calls again once the outermost pause is over."""
        if not self.enabled:
            return
        kept = self.threads.kept
        depth = kept.depth = kept.depth - 1 if kept.depth > 1 else 0
        if depth or not kept.worth or kept.replaying or kept.overflows >= MAX_OVERFLOWS:
            return
        if not kept.recorder.on:
            kept.recorder.enter_stack()

    def heal(self) -> None:
        """Forget pauses that never ended because they were interrupted."""
        kept = self.threads.kept
        kept.entered = None
        if kept.depth:
            kept.depth = 1
            self.resume()

    def unnoted(self, work: Callable[..., ResultT], *args: object) -> ResultT:
        """Call a function; neither it nor anything that it calls is noted."""
        self.pause()
        try:
            return work(*args)
        finally:
            self.resume()

    def noted(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Call a function that is noted as a whole, and nothing of what it calls."""
        kept = self.threads.kept
        derivatives, drawn = kept.transforms, draw_state()
        self.pause()
        try:
            outcome = function(*args, **kwargs)
            differs = kept.transforms != derivatives
            try:
                kept.recorder.take(function, args, kwargs, outcome, drawn, differs)
            except Exception as error:
                self._give_up(error)
        finally:
            self.resume()
        return outcome

    # ------------------------------------------------------------------ root modules
    def entered(self, module: Module, args: Sequence[object]) -> None:
        """A root module is about to run."""
        try:
            kept = self.threads.kept
            kept.depth += 1
            recorder = kept.recorder
            if recorder.on or recorder.leftover:
                recorder.leave_stack()
            state = kept.roots.get(id(module))
            if state is None or state.root() is not module:
                state = kept.roots[id(module)] = RootState(module)
            state.called()
            grad = torch.is_grad_enabled()
            generators = generators_now() if state.draws else None
            kept.entered = (module, state, generators, _versions(args), grad)
            if not grad or state.plain:
                return
            if kept.region is not Region.LOSS:
                kept.end_region(Region.LOSS)
            if state.has_buffers:
                state.keep_for_call(kept.tape, min(kept.marks.values(), default=0))
        except Exception as error:
            self._give_up(error)

    def left(
        self, module: Module, args: Sequence[object], kwargs: Mapping[str, object], output: object
    ) -> None:
        """A root module has returned ``output``; ``None`` after an exception."""
        kept = self.threads.kept
        entered, kept.entered = kept.entered, None
        if entered is None or entered[0] is not module:
            return
        try:
            if output is not None:
                self._note_call(kept, entered, args, kwargs, output)
        except Exception as error:
            self._give_up(error)
        self.resume()

    def _note_call(
        self,
        kept: Kept,
        entered: Entered,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        module, state, generators, versions, grad = entered
        tape = kept.tape
        first = args[0] if args else next(iter(kwargs.values()), None)
        entry = CallEntry(
            place=user_line(),
            ambient=ambient_now(),
            args=tape.freeze_all(args),
            kwargs={name: tape.freeze(value) for name, value in kwargs.items()} if kwargs else {},
            module=module,
            has_parameters=state.has_parameters,
            training=module.training,
            generators=generators,
            version=state.version() if state.has_parameters else 0,
            mutated=versions != _versions(args),
            shape=_shape(first),
        )
        tape.append(entry, output)
        if not grad:
            self._forget_old_calls(tape)

    @staticmethod
    def _forget_old_calls(tape: Tape) -> None:
        """Keep only the last calls without gradients: a validation between steps has many."""
        calls = [e for e in tape.entries if isinstance(e, CallEntry) and not e.ambient.grad]
        if len(calls) > _MAX_UNGRADED_CALLS:
            last = calls[-_MAX_UNGRADED_CALLS].number
            tape.keep_only(
                lambda entry: (
                    entry.number >= last or (isinstance(entry, CallEntry) and entry.ambient.grad)
                )
            )

    # ------------------------------------------------------------------ backward and steps
    def backward_starts(
        self, roots: Sequence[Tensor], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> None:
        """An accumulating backward pass is about to run; call :meth:`backward_ends` after it."""
        kept = self.threads.kept
        kept.in_backward = True
        self.pause()
        try:
            tape = kept.tape
            entry = BackwardEntry(
                place=user_line(),
                ambient=ambient_now(),
                args=tape.freeze_all(args),
                kwargs=dict(zip(kwargs, tape.freeze_all(tuple(kwargs.values())), strict=True)),
                roots=tape.freeze_all(roots),
            )
            tape.append(entry, None)
            if kept.region is Region.LOSS:
                kept.end_region(Region.UPDATE)
        except Exception as error:
            self._give_up(error)

    def backward_ends(self) -> None:
        """The backward pass is over."""
        self.threads.kept.in_backward = False
        self.resume()

    @_quietly
    def cleared(self) -> None:
        """Gradients were cleared: what an earlier backward pass had made is gone."""
        tape = self.kept.tape
        last = max((e.number for e in tape.entries if isinstance(e, BackwardEntry)), default=0)
        if last:
            tape.passed, living = last, tape.living()
            tape.keep_only(lambda entry: entry.number > last or entry.number in living)

    def step_ends(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: what all of them have stepped past is not needed any more."""
        if not self.enabled:
            return
        kept = self.threads.kept
        try:
            if kept.only is not None and kept.only() is optimizer:
                kept.forget_step()
            else:
                self._mark(kept, optimizer)
        except Exception as error:
            self._give_up(error)
        kept.end_region(Region.PREPARATION)
        kept.begin_step()
        self.resume()

    @_quietly
    def pass_ends(self) -> None:
        """A backward pass that no step follows is over: the passes before it are not needed."""
        kept = self.kept
        passes = [entry for entry in kept.tape.entries if is_pass(entry)]
        kept.begin_step()
        if passes:
            last, kept.since = kept.since, passes[-1].number
            kept.tape.disown(kept.since, plain=not isinstance(passes[-1], BackwardEntry))
            living = kept.tape.living()
            kept.tape.keep_only(lambda entry: entry.number > last or entry.number in living)

    def _mark(self, kept: Kept, optimizer: Optimizer) -> None:
        """Forget what came before the last step of every optimizer, once all of them are known."""
        first = optimizer not in kept.marks  # nobody knows yet who steps after it
        kept.tape.last += 1  # what comes later is told from what came before by its number
        kept.marks[optimizer] = kept.tape.last
        recent = sorted(kept.marks.values())[-_MAX_OPTIMIZERS:]
        kept.only = weakref.ref(optimizer) if len(kept.marks) == 1 and not first else None
        if not first:
            kept.tape.keep_only(lambda entry: entry.number > recent[0])
            kept.tape.forget_writes(recent[0])
        kept.tape.problems.clear()

    def _give_up(self, error: Exception) -> None:
        """Keep nothing from now on: the training must not notice that keeping failed."""
        self.failure = error
        self.stop()


def _shape(value: object) -> tuple[int, ...]:
    """The shape of a tensor, else of the first that a container holds."""
    found = value if isinstance(value, Tensor) else next(leaves(value), None)
    return () if found is None else found.shape


def _versions(values: Sequence[object]) -> list[int]:
    found = []
    for value in values:
        if isinstance(value, Tensor) and not value.is_inference():
            found.append(value._version)
    return found


def _forked(reference: weakref.ref[Keeper]) -> None:
    """Note nothing in a forked worker of a data loader."""
    keeper = reference()
    if keeper is not None and keeper.enabled:
        keeper.stop()
