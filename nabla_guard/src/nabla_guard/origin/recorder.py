"""Sees the functions of torch that the user's code calls outside of modules.

A ``TorchFunctionMode`` that only notes. It sits at the bottom of the mode stack of its thread, just
above the one of ``torch.device`` (which insists on the very bottom), so that modes which the user
enters and leaves while it is there are never taken for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from ..taps.hidden import hidden_from_compiler
from ..taps.place import user_line
from ..taps.transforms import in_transform
from .ambient import Generators, ambient_now
from .op_note import VIEWS, op_note
from .region import Region
from .shorthand import as_generators, draw_state
from .tape import OpEntry
from .writes import assigned_attribute, is_in_place, note_writes

if TYPE_CHECKING:
    from .kept import Kept

__all__ = ["StepRecorder"]

_length = torch._C._len_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_push = torch._C._push_on_torch_function_stack

_NEVER = frozenset(
    {
        "__repr__",
        "__format__",
        "__deepcopy__",
        "__reduce_ex__",
        "backward",
        "register_post_accumulate_grad_hook",
        "retain_grad",
        "share_memory_",
        "set_",
    }
)
_DRAWS = frozenset(
    {
        "alpha_dropout",
        "bernoulli",
        "bernoulli_",
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "exponential_",
        "feature_alpha_dropout",
        "gumbel_softmax",
        "multinomial",
        "normal_",
        "poisson",
        "random_",
        "rrelu",
        "scaled_dot_product_attention",
        "uniform_",
    }
)
_ABLE: dict[str, bool] = {}  # whether a function of this name changes nothing but its result
_GRADIENT = torch._C.TensorBase.__dict__["grad"]
_MAX_NOTES = 64
_OPTIMIZERS = os.path.dirname(torch.optim.__file__) + os.sep
_OF_UPDATES = ("_init_group", "_single_tensor_", "_multi_tensor_", "_fused_")
_OF_OPTIMIZERS: dict[str, bool] = {}  # by file name: code that is gone is not kept
_FRESH = frozenset({"rand_like", "randn_like", "randint_like", "empty_like"})


class StepRecorder(TorchFunctionMode):
    """Notes calls on a tape while it is on the stack.

    Attributes:
        on: whether calls are noted.
        leftover: it was to leave while torch had taken it off for a call, and was put back since.
        handling: how many calls it is passing on now, one inside of another.
        after: to be done once the call that runs is noted.
    """

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept
        self.on = False
        self.leftover = False
        self.handling = 0
        self.after: Callable[[], None] | None = None

    def enter_stack(self) -> None:
        """Start noting in this thread."""
        self.on = True
        if self.handling:
            return  # torch puts it back when the call that is being handled returns
        if not _length():
            _push(self)
            return
        above = [mode for _ in range(_length()) if (mode := _pop()) is not self]
        if above and isinstance(above[-1], DeviceContext):
            _push(above.pop())
        _push(self)
        for mode in reversed(above):
            _push(mode)

    def leave_stack(self) -> None:
        """Stop noting; what the user left on the stack stays as it is."""
        self.on = False
        self.leftover = bool(self.handling)
        if _length() == 1:
            mode = _pop()
            if mode is not self:
                _push(mode)
            return
        taken = [_pop() for _ in range(_length())]
        for mode in reversed(taken):
            if mode is not self:
                _push(mode)

    @hidden_from_compiler
    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if not self.on or torch.compiler.is_compiling() or in_transform():
            return func(*args, **(kwargs or {}))
        code = sys._getframe(1).f_code
        if _OF_OPTIMIZERS.get(code.co_filename) is not False and _is_update(code):
            self.on = False  # until the step is over: its closure has run, the rest is not noted
            return func(*args, **(kwargs or {}))
        if getattr(func, "__self__", None) is _GRADIENT and func.__name__ == "__get__":
            return self._read_gradient(func, args)
        draws = getattr(func, "__name__", "") in _DRAWS
        before = draw_state() if draws else None
        self.handling += 1
        try:
            outcome = func(*args, **kwargs) if kwargs else func(*args)
        finally:
            self.handling -= 1
        if self.on:
            try:
                self.take(func, args, kwargs or {}, outcome, before)
            except Exception as error:
                self._kept.tape.problem(f"{type(error).__name__} while noting a call: {error}")
        if self.after is not None:
            self._do_after()
        return outcome

    def _read_gradient(self, func: Callable[..., object], args: tuple[object, ...]) -> object:
        """Read ``tensor.grad``, as many loops do for each parameter, with the least of notes."""
        grad, leaf = func(*args), args[0]
        if type(grad) is Tensor and isinstance(leaf, Tensor) and leaf.is_leaf:
            self._kept.note_gradient(leaf, grad)
        return grad

    def _do_after(self) -> None:
        """Do what had to wait for the note; torch still has this mode off its stack."""
        after, self.after = self.after, None
        self.handling += 1
        try:
            if after is not None:
                after()
        finally:
            self.handling -= 1

    def take(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        outcome: object,
        drawn: Tensor | Generators | None = None,
        differentiates: bool = False,
    ) -> None:
        """Note and count a call that has returned; as it is, where that is enough.

        Args:
            func: the function.
            args: what it was given.
            kwargs: the same by name.
            outcome: what it returned.
            drawn: the random states before the call; ``None`` when it does not draw.
            differentiates: derivatives were taken inside.
        """
        kept = self._kept
        if kept.brief and type(outcome) is Tensor and self._may_be_brief(func, args):
            note = op_note(func, args, kwargs, outcome, drawn=drawn, differentiates=differentiates)
            if note is not None:
                kept.later.append(note)
                kept.count()
                return
        entry = self._note(func, args, kwargs, outcome)
        if entry is not None:
            entry.generators = as_generators(drawn)
            entry.differentiates = differentiates
            kept.count()

    def _may_be_brief(self, func: Callable[..., object], args: tuple[object, ...]) -> bool:
        """Whether a call may be noted as it is, as far as its name and its past show."""
        kept = self._kept
        name = getattr(func, "__name__", "")
        able = _ABLE.get(name)
        if able is None:
            able = name not in _NEVER and name not in _FRESH and not is_in_place(name)
            _ABLE[name] = able
        if not able or len(kept.later) >= _MAX_NOTES:
            return False
        return kept.region is not Region.PREPARATION or not self._looks_back(args)

    def _note(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        outcome: object,
    ) -> OpEntry | None:
        """Note a call that has returned, unless nothing of it has to be done again."""
        name = getattr(func, "__name__", "")
        if not isinstance(outcome, Tensor) and not _has_tensors(outcome):
            written = outcome is None and self._writes(name, func, args)
            written = written or (name == "register_hook" and self._is_made(args))
            if not written:
                return None
        if name in _NEVER or name in _FRESH or not _takes_tensors(args, kwargs):
            return None
        tape = self._kept.tape
        if self._kept.region is Region.PREPARATION and self._looks_back(args):
            return None  # looks back at the last step: keeping it would keep its graph
        place = user_line()
        if is_in_place(name) and note_writes(tape, name, args, kwargs, place):
            return None
        entry = OpEntry(
            place=place,
            ambient=ambient_now(),
            args=tape.freeze_all(args),
            kwargs={key: tape.freeze(value) for key, value in kwargs.items()} if kwargs else {},
            function=func,
        )
        tape.append(entry, outcome)
        if name in VIEWS:
            tape.borrow(args[0], outcome)
        return entry

    def _is_made(self, args: tuple[object, ...]) -> bool:
        """Whether the first argument is a tensor that the step has made."""
        return bool(args) and isinstance(args[0], Tensor) and self._kept.tape.knows(args[0])

    def _looks_back(self, args: tuple[object, ...]) -> bool:
        """Whether a call uses an autograd graph that the tape does not know."""
        for value in args:
            if not isinstance(value, Tensor) or value.grad_fn is None:
                continue  # the tape, which is asked next, writes out what was noted in brief
            if not self._kept.tape.knows(value):
                return True
        return False

    def _pin_gradient(self, leaf: Tensor) -> None:
        """A gradient was replaced: what was read of it before is noted as a call of its own."""
        grad = self._kept.tape.take_gradient(leaf)
        if grad is not None:
            read = getattr(_GRADIENT, "__get__")  # noqa: B009 - what a read calls
            args = self._kept.tape.freeze_all((leaf,))
            entry = OpEntry(place=user_line(), ambient=ambient_now(), args=args, function=read)
            self._kept.tape.append(entry, grad)

    def _writes(self, name: str, func: Callable[..., object], args: tuple[object, ...]) -> bool:
        """Whether a call without outcome changes a tensor in a way that must be done again."""
        if name == "__setitem__" or (name.startswith("_foreach") and name.endswith("_")):
            return True
        if name != "__set__":
            return False
        attribute = assigned_attribute(func)
        first, made = args[0], self._is_made(args)
        if attribute == "data" and isinstance(first, Tensor) and not made:
            self._kept.tape.note_write(first, user_line())
        if attribute == "grad" and isinstance(first, Tensor):
            self._pin_gradient(first)
        return attribute == "grad" or (attribute == "requires_grad" and made)


def _is_update(code: CodeType) -> bool:
    """Whether a function is part of an update of torch: it runs when the closure has returned."""
    own = _OF_OPTIMIZERS[code.co_filename] = code.co_filename.startswith(_OPTIMIZERS)
    return own and code.co_name.startswith(_OF_UPDATES)


def _has_tensors(value: object) -> bool:
    """Whether a tuple, list or mapping, possibly nested once, holds a tensor."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, (tuple, list)):
        return False
    return any(isinstance(item, Tensor) or _has_tensors(item) for item in value)


def _takes_tensors(args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether the outcome depends on a tensor: factories make their outcome from outside."""
    values = (*args, *kwargs.values())
    return any(isinstance(value, Tensor) or _has_tensors(value) for value in values)
