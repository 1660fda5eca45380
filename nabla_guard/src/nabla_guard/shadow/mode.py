"""Runs the program as it is and computes, beside each op, the same in float64.

The float64 values of a region start from the low-precision values that entered it, so that a region
answers for its own arithmetic and never for that of the layers before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ..origin.nested import leaves
from ..origin.traits import name_of, writes
from ..origin.undo import UndoLog
from ..taps.place import Line
from .findings import Unsupported
from .frames import Frame, Frames
from .mirrors import Mirrors, upcast
from .ops import Treatment, in_float64, is_low, is_plain, replaced, treatment_of

__all__ = ["Observer", "OpCall", "ShadowMode"]


@dataclass(slots=True, kw_only=True, eq=False)
class OpCall:
    """One op that was mirrored.

    Attributes:
        op: the op.
        name: its plain name.
        frame: the region it belongs to.
        module: path of the module that runs it; ``None`` outside of modules.
        line: what the user's loop called, where nothing of the user's runs inside of it.
        args: its arguments, as the program gave them.
        kwargs: its keyword arguments.
        inputs: low-precision tensors among them.
        written: those that it changed in place.
        outputs: each result with its mirror.
        shifted: mirrors of the same results from moved inputs; empty without a close look.
    """

    op: OpOverload
    name: str
    frame: Frame
    module: str | None
    line: Line | None
    args: Sequence[object]
    kwargs: Mapping[str, object]
    inputs: list[Tensor]
    written: list[Tensor]
    outputs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    shifted: list[Tensor] = field(default_factory=list)


class Observer(Protocol):
    """Looks at each mirrored op."""

    def before(self, call: OpCall) -> None:
        """An op is about to run."""

    def after(self, call: OpCall) -> None:
        """An op and its mirror have run."""


Arguments = tuple[Sequence[object], Mapping[str, object]]


class ShadowMode(TorchDispatchMode):
    """Mirrors the ops of active regions while it is entered.

    Args:
        frames: the regions.
        observer: looks at each mirrored op.

    Attributes:
        undo: keeps what is about to be overwritten.
        unsupported: what could not be mirrored, by name.
    """

    def __init__(self, frames: Frames, observer: Observer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.frames = frames
        self.undo = UndoLog()
        self.unsupported: dict[str, Unsupported] = {}
        self._observer = observer

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        treatment = treatment_of(func)
        if treatment is Treatment.VIEW:
            return func(*args, **kwargs)
        written = writes(func, args, kwargs) if func._schema.is_mutable else []
        for tensor in written:
            self.undo.about_to_write(tensor)
        call = self._begin(func, args, kwargs, written, treatment)
        outcome = func(*args, **kwargs) if call is None else self._run(call, treatment)
        if treatment is Treatment.FILL:
            self._keep_constant(outcome)
        self._settle(outcome, written, mirrored=call is not None)
        return outcome

    def _begin(
        self,
        op: OpOverload,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        written: list[Tensor],
        treatment: Treatment,
    ) -> OpCall | None:
        """Return the call if it is to be mirrored."""
        frame = self.frames.top
        if not frame.active or treatment in (Treatment.DROP, Treatment.FILL):
            return None
        tensors = list(leaves((args, kwargs)))
        inputs = [tensor for tensor in tensors if is_low(tensor)]
        if not all(is_plain(tensor) for tensor in tensors):
            self._unsupported(op, "its tensors are complex, sparse, quantised or a subclass")
            return None
        if not inputs:
            return None
        follows = treatment is Treatment.MIRROR or (
            treatment is Treatment.MOVE and frame.shifted is not None
        )
        if not follows and all(frame.mirrors.of(tensor) is None for tensor in inputs):
            return None  # exact, as everything that enters the region
        return OpCall(
            op=op,
            name=name_of(op),
            frame=frame,
            module=self.frames.module,
            line=self.frames.place,
            args=args,
            kwargs=kwargs,
            inputs=inputs,
            written=written,
        )

    def _run(self, call: OpCall, treatment: Treatment) -> object:
        frame = call.frame
        self._observer.before(call)
        mirrored = self._mirrored(call, frame.mirrors)
        shifted = None if frame.shifted is None else self._mirrored(call, frame.shifted)
        own = self._exact(call) if treatment is Treatment.ACCURATE else None
        outcome = call.op(*call.args, **call.kwargs)
        try:
            truth = in_float64(call.op, *mirrored)
            moved = None if shifted is None else in_float64(call.op, *shifted)
            alone = None if own is None else in_float64(call.op, *own)
            self._keep(call, outcome, (truth, moved, alone))
        except Exception as error:
            self._unsupported(call.op, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            for tensor in (*call.written, *leaves(outcome)):
                frame.forget(tensor)
            return outcome
        self._observer.after(call)
        return outcome

    @staticmethod
    def _mirrored(call: OpCall, mirrors: Mirrors) -> Arguments:
        def change(tensor: Tensor) -> Tensor:
            if any(tensor is given for given in call.written):
                return mirrors.writable(tensor)
            return mirrors.value(tensor)

        return _changed(call, change)

    @staticmethod
    def _exact(call: OpCall) -> Arguments:
        return _changed(call, lambda tensor: upcast(tensor, 0.0))

    def _keep(self, call: OpCall, outcome: object, results: tuple[object, ...]) -> None:
        """Note the mirrors of what an op gave."""
        truth, moved, alone = (_several(result) for result in results)
        for index, tensor in enumerate(_several(outcome)):
            if not isinstance(tensor, Tensor) or not is_low(tensor) or not is_plain(tensor):
                continue
            call.frame.computed(tensor)
            mirror = _at(truth, index)
            if any(tensor is given for given in call.written):
                mirror = call.frame.mirrors.of(tensor)
            elif mirror is None or mirror.shape != tensor.shape:
                call.frame.forget(tensor)
                continue
            else:
                offset = _own_error(tensor, _at(alone, index))
                mirror = mirror if offset is None else mirror + offset
                call.frame.mirrors.put(tensor, mirror)
                self._keep_shifted(call.frame, tensor, _at(moved, index), offset)
            if mirror is not None:
                call.outputs.append((tensor, mirror))
                if call.frame.shifted is not None:
                    call.shifted.append(call.frame.shifted.value(tensor))

    def _keep_constant(self, outcome: object) -> None:
        """Let a constant stay where it is when what enters the region is moved."""
        moved = self.frames.top.shifted
        for tensor in leaves(outcome) if moved is not None else ():
            if moved is not None and is_low(tensor) and is_plain(tensor):
                moved.put(tensor, upcast(tensor, 0.0))

    @staticmethod
    def _keep_shifted(
        frame: Frame, tensor: Tensor, moved: Tensor | None, offset: Tensor | None
    ) -> None:
        if frame.shifted is not None and moved is not None:
            frame.shifted.put(tensor, moved if offset is None else moved + offset)

    def _settle(self, outcome: object, written: list[Tensor], *, mirrored: bool) -> None:
        """Follow the memory that an op made or changed."""
        for tensor in leaves(outcome):
            if not any(tensor is given for given in written):
                self.undo.made(tensor)
        for tensor in written:
            for frame in self.frames.outer:
                frame.forget(tensor)
            if not mirrored:
                self.frames.top.forget(tensor)

    def _unsupported(self, op: OpOverload, reason: str) -> None:
        name = op._schema.name
        self.unsupported.setdefault(name, Unsupported(what=name, reason=reason))


def _changed(call: OpCall, change: Callable[[Tensor], Tensor]) -> Arguments:
    args = [replaced(value, change) for value in call.args]
    return args, {name: replaced(value, change) for name, value in call.kwargs.items()}


def _several(outcome: object) -> Sequence[object]:
    return outcome if isinstance(outcome, (tuple, list)) else (outcome,)


def _at(results: Sequence[object], index: int) -> Tensor | None:
    found = results[index] if index < len(results) else None
    return found if isinstance(found, Tensor) and found.dtype is torch.float64 else None


def _own_error(tensor: Tensor, alone: Tensor | None) -> Tensor | None:
    """What an accurate op adds to the error of its inputs; nothing where both are infinite."""
    if alone is None:
        return None
    low = tensor.detach().double()
    return torch.where(low == alone, 0.0, low - alone)
