"""The dispatch mode of deep mode: reduces the result of every op into a slot."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn import Module
from torch.utils._python_dispatch import TorchDispatchMode

from ..layers.here import MEASURED
from ..taps.hidden import CAN_HIDE, hidden_from_compiler
from .sites import Part, Sites, SiteTable

if TYPE_CHECKING:
    from .inner import Inner

__all__ = ["FIRST_SITE", "Around", "OpMode"]

FIRST_SITE = 1 << 24
"""Owners from here on are sites of ops, those below are layers."""

_functions = torch._C._len_torch_function_stack
_length = torch._C._len_torch_dispatch_stack
_push = torch._C._push_on_torch_dispatch_stack
_pop = torch._C._pop_torch_dispatch_stack
_at = torch._C._get_dispatch_stack_at


class Around:
    """Where the ops that come next belong.

    Args:
        module: path of the module; ``""`` outside.
        part: part of the step.
        chosen: whether its ops are measured.
    """

    __slots__ = ("chosen", "module", "part", "ref", "sites")

    def __init__(self, module: str, part: Part, chosen: bool = True) -> None:
        self.module = module
        self.part = part
        self.chosen = chosen
        self.ref: weakref.ref[Module] | None = None  # forgets the place with its module
        self.sites: Sites = {}


class OpMode(TorchDispatchMode):
    """Measures ops of one thread while it is on the stack.

    Attributes:
        around: where the ops that come next belong.
        last: the result that was reduced last.

    Args:
        inner: the thread's banks.
        table: numbers of the sites.
    """

    def __init__(self, inner: Inner, table: SiteTable) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.around = Around("", "loss")
        self.last: Tensor | None = None
        self._inner = inner
        self._table = table
        self._bank = inner.bank_of(torch.float32, torch.device("cpu"))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps each op in a call that hides it, which costs more than the op."""
        return not CAN_HIDE

    @property
    def is_top(self) -> bool:
        """Whether it is the innermost mode of the calling thread."""
        length = _length()
        return bool(length) and _at(length - 1) is self

    def enter(self) -> None:
        """Measure from now on; the compiler is told, and lets compiled functions run as written."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def leave(self) -> bool:
        """Measure no more; return whether it was on the stack, on top of all others."""
        self.last = None
        if not self.is_top:
            return False
        if self.old_dispatch_mode_flags:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        else:
            _pop(None)  # the engine put it back after an exception
        return True

    def pause(self) -> bool:
        """Be off the stack for an op of ours; return whether it was on top."""
        if not self.is_top:
            return False
        _pop(None)
        return True

    def resume(self) -> None:
        """End a pause."""
        _push(self)

    @hidden_from_compiler
    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        outcome = func(*args, **kwargs) if kwargs else func(*args)
        site = self.around.sites.get(func)  # type: ignore[call-overload]
        if site is None:
            site = self._meet(func)
        if site >= 0:
            if type(outcome) is Tensor:
                self._measure(outcome, site)
            elif isinstance(outcome, (tuple, list)):
                for item in outcome:
                    if type(item) is Tensor:
                        self._measure(item, site)
        return outcome

    def _measure(self, tensor: Tensor, site: int) -> None:
        bank = self._bank
        try:
            if tensor.dtype is not bank.dtype or tensor.device != bank.device:
                if tensor.dtype not in MEASURED or tensor.is_meta:
                    return
                bank = self._bank = self._inner.bank_of(tensor.dtype, tensor.device)
            if _functions():
                with torch._C.DisableTorchFunction():  # modes of the program must not see ours
                    bank.reduce(tensor, FIRST_SITE + site)
            else:
                bank.reduce(tensor, FIRST_SITE + site)
            self.last = tensor
        except (RuntimeError, IndexError):
            return  # it has no elements, or none that lie in memory one by one

    def _meet(self, func: Callable[..., object]) -> int:
        around = self.around
        number = -1
        if isinstance(func, OpOverload) and around.chosen:
            number = self._table.number(func, around.module, around.part)
        around.sites[func] = number  # type: ignore[index]
        return number
