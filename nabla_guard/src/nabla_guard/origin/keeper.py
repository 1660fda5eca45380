"""Keeps what is needed to execute the present step again: the hot path of the origin.

Per thread one tape and one recorder. The instrument tells when root modules, backward passes and
optimizer steps begin and end; in between, outside of them, the recorder notes the user's own calls.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..taps.place import user_line
from .ambient import ambient_now, generators_now
from .kept import Entered, Kept
from .region import Region
from .root_state import RootState
from .tape import BackwardEntry, CallEntry, Entry

__all__ = ["Keeper"]

_MAX_UNGRADED_CALLS = 4
_MAX_OVERFLOWS = 3
_MAX_OPTIMIZERS = 8


Params = ParamSpec("Params")


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
                keeper.failure = error
                keeper.stop()

    return wrapper


class Keeper:
    """Notes the present step of each thread while :attr:`enabled`."""

    def __init__(self) -> None:
        self.enabled = False
        self.failure: Exception | None = None
        self._kept = Kept()
        keeper = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forked(keeper))

    @property
    def kept(self) -> Kept:
        """What is kept in the calling thread."""
        return self._kept

    @property
    def replaying(self) -> bool:
        """Whether the calling thread is executing a step again: nothing of it may be counted."""
        return self._kept.replaying

    @property
    def busy(self) -> bool:
        """Whether a backward pass is no news in this thread: it is watched already, or a replay."""
        return self._kept.replaying or self._kept.in_backward

    def start(self) -> None:
        """Keep what happens from now on, in the calling thread from this moment."""
        if not self.enabled:
            self.enabled = True
            self._kept = Kept()
            self.resume()

    def stop(self) -> None:
        """Let go of everything."""
        self.enabled = False
        self._kept.recorder.leave_stack()
        self._kept = Kept()

    # ------------------------------------------------------------------ pauses
    def pause(self) -> None:
        """Stop noting calls: a module, a backward pass or a step of an optimizer begins."""
        if not self.enabled:
            return
        kept = self._kept
        kept.depth += 1
        if kept.recorder.on or kept.recorder.leftover:
            kept.recorder.leave_stack()

    def resume(self) -> None:
        """Note calls again once the outermost pause is over."""
        if not self.enabled:
            return
        kept = self._kept
        kept.depth = max(0, kept.depth - 1)
        if kept.depth or kept.replaying or kept.overflows >= _MAX_OVERFLOWS:
            return
        if not kept.recorder.on and kept.is_worth_noting:
            kept.recorder.enter_stack()

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Note nothing during a backward pass."""
        kept = self._kept
        kept.in_backward = True
        self.pause()
        try:
            yield
        finally:
            kept.in_backward = False
            self.resume()

    # ------------------------------------------------------------------ root modules
    @_quietly
    def entered(self, module: Module, args: Sequence[object]) -> None:
        """A root module is about to run."""
        self.pause()
        kept = self._kept
        state = kept.roots.get(id(module))
        if state is None or state.root() is not module:
            state = kept.roots[id(module)] = RootState(module)
        state.called()
        grad = torch.is_grad_enabled()
        kept.entered = Entered(
            module, state, None if state.plain else generators_now(), _versions(args)
        )
        if not grad or state.plain:
            return
        if kept.region is not Region.LOSS:
            kept.end_region(Region.LOSS)
        if not any(_is_call_of(entry, module) for entry in kept.tape.entries):
            state.keep_buffers()  # a later call is done again from what an earlier one leaves

    @_quietly
    def left(
        self, module: Module, args: Sequence[object], kwargs: Mapping[str, object], output: object
    ) -> None:
        """A root module has returned ``output``; ``None`` after an exception."""
        kept = self._kept
        if kept.entered is None or kept.entered.module is not module:
            return
        entered, kept.entered = kept.entered, None
        if output is not None:
            self._note_call(entered, args, kwargs, output)
        self.resume()

    def heal(self) -> None:
        """Forget pauses that never ended because they were interrupted."""
        kept = self._kept
        kept.entered = None
        if kept.depth:
            kept.depth = 1
            self.resume()

    def _note_call(
        self,
        entered: Entered,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        tape = self._kept.tape
        entry = CallEntry(
            number=tape.number(),
            place=user_line(),
            ambient=ambient_now(),
            args=tuple([tape.freeze(value) for value in args]),
            kwargs={name: tape.freeze(value) for name, value in kwargs.items()} if kwargs else {},
            module=entered.module,
            has_parameters=entered.state.has_parameters,
            training=entered.module.training,
            generators=entered.generators,
            version=entered.state.version(),
            mutated=entered.versions != _versions(args),
            batch=_batch_size(args, kwargs),
        )
        tape.append(entry, output)
        if not entry.ambient.grad:
            self._forget_old_calls()

    def _forget_old_calls(self) -> None:
        """Keep only the last calls without gradients: a validation between steps has many."""
        tape = self._kept.tape
        calls = [e for e in tape.entries if isinstance(e, CallEntry) and not e.ambient.grad]
        if len(calls) > _MAX_UNGRADED_CALLS:
            last = calls[-_MAX_UNGRADED_CALLS].number
            tape.keep_only(
                lambda entry: (
                    entry.number >= last or (isinstance(entry, CallEntry) and entry.ambient.grad)
                )
            )

    # ------------------------------------------------------------------ backward and steps
    @_quietly
    def backward_starts(
        self, roots: Sequence[Tensor], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> None:
        """An accumulating backward pass is about to run."""
        tape = self._kept.tape
        entry = BackwardEntry(
            number=tape.number(),
            place=user_line(),
            ambient=ambient_now(),
            args=tuple([tape.freeze(value) for value in args]),
            kwargs={name: tape.freeze(value) for name, value in kwargs.items()},
            roots=tuple([tape.freeze(root) for root in roots]),
        )
        tape.append(entry, None)
        if self._kept.region is Region.LOSS:
            self._kept.end_region(Region.UPDATE)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Note nothing during the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @_quietly
    def cleared(self) -> None:
        """Gradients were cleared: what an earlier backward pass had made is gone."""
        tape = self._kept.tape
        last = max((e.number for e in tape.entries if isinstance(e, BackwardEntry)), default=0)
        if last:
            living = tape.living()
            tape.keep_only(lambda entry: entry.number > last or entry.number in living)

    @_quietly
    def step_ends(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: what all of them have stepped past is not needed any more."""
        kept = self._kept
        if kept.only is not None and kept.only() is optimizer:
            kept.tape.clear()
        else:
            self._mark(kept, optimizer)
        kept.end_region(Region.UPDATE)
        kept.region = Region.PREPARATION
        kept.ops = kept.noted = 0
        self.resume()

    @_quietly
    def pass_ends(self) -> None:
        """A backward pass that no step follows is over: the passes before it are not needed."""
        kept = self._kept
        passes = [e.number for e in kept.tape.entries if isinstance(e, BackwardEntry)]
        kept.ops = kept.noted = 0
        if passes:
            last, kept.since = kept.since, passes[-1]
            living = kept.tape.living()
            kept.tape.keep_only(lambda entry: entry.number > last or entry.number in living)

    def _mark(self, kept: Kept, optimizer: Optimizer) -> None:
        """Forget what came before the last step of every optimizer, once all of them are known."""
        first = optimizer not in kept.marks  # nobody knows yet who steps after it
        kept.marks[optimizer] = kept.tape.number()
        recent = sorted(kept.marks.values())[-_MAX_OPTIMIZERS:]
        kept.only = weakref.ref(optimizer) if len(kept.marks) == 1 and not first else None
        if not first:
            kept.tape.keep_only(lambda entry: entry.number > recent[0])
            kept.tape.forget_writes(recent[0])
        kept.tape.problems.clear()


def _versions(args: Sequence[object]) -> tuple[int, ...]:
    return tuple(
        [arg._version for arg in args if isinstance(arg, Tensor) and not arg.is_inference()]
    )


def _batch_size(args: Sequence[object], kwargs: Mapping[str, object]) -> int:
    first = args[0] if args else next(iter(kwargs.values()), None)
    return first.shape[0] if isinstance(first, Tensor) and first.dim() else 0


def _is_call_of(entry: Entry, module: Module) -> bool:
    return isinstance(entry, CallEntry) and entry.module is module


def _forked(reference: weakref.ref[Keeper]) -> None:
    """Note nothing in a forked worker of a data loader."""
    keeper = reference()
    if keeper is not None and keeper.enabled:
        keeper.stop()
