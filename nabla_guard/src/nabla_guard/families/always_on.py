"""Dropout that stays active in evaluation mode: called without the mode, or out of its reach."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch.nn import Module
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from ..facts import Place
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place

if TYPE_CHECKING:
    from ..loop.watch import Watch

__all__ = ["AlwaysOn", "Drop"]

_FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d")
_MAX_FRAMES = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A dropout that was active without gradients inside a module in evaluation mode.

    Attributes:
        what: what was called, and why the mode does not reach it.
        module: class name of the module in whose forward it is called.
        place: where.
    """

    what: str
    module: str
    place: Place | None


class AlwaysOn:
    """Notes such calls for its watch.

    Attributes:
        found: the first one since somebody last took it away.
    """

    def __init__(self, watch: Watch) -> None:
        self.found: Drop | None = None
        self._watch = watch

    def start(self, patches: Patches) -> None:
        """Replace the functions; with gradients they only pass on."""
        for name in _FUNCTIONS:
            patches.replace(F, name, self._wrap_dropout)
        patches.replace(F, "scaled_dot_product_attention", self._wrap_attention)

    def take(self) -> Drop | None:
        """Return what was found since the last call."""
        found, self.found = self.found, None
        return found

    # ------------------------------------------------------------------ replaced functions
    def _wrap_dropout(self, original: Replacement) -> Replacement:
        def dropout(*args: object, **kwargs: object) -> object:
            if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
                training = args[2] if len(args) > 2 else kwargs.get("training")
                share = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
                if training is not False and share and self.found is None:
                    self._watch.guarded(lambda: self._look(original, training))
            return original(*args, **kwargs)

        return dropout

    def _wrap_attention(self, original: Replacement) -> Replacement:
        def scaled_dot_product_attention(*args: object, **kwargs: object) -> object:
            if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
                share = args[4] if len(args) > 4 else kwargs.get("dropout_p")
                if share and self.found is None:
                    self._watch.guarded(self._look_at_attention)
            return original(*args, **kwargs)

        return scaled_dot_product_attention

    # ------------------------------------------------------------------ private
    def _look(self, original: Replacement, training: object) -> None:
        around = list(_forwards(sys._getframe(3)))
        if not around or around[-1].training:
            return
        inner, name = around[0], f"F.{getattr(original, '__name__', 'dropout')}"
        if training is None and not inner.training:
            self._note(f"{name} without training=self.training", inner)
        elif isinstance(inner, _DropoutNd) and _is_out_of_reach(inner, around[1:]):
            what = f"a {type(inner).__name__} that is no registered submodule"
            self._note(what, around[1])

    def _look_at_attention(self) -> None:
        around = list(_forwards(sys._getframe(3)))
        if around and not around[0].training and not around[-1].training:
            self._note("scaled_dot_product_attention with a dropout_p above 0", around[0])

    def _note(self, what: str, module: Module) -> None:
        self.found = Drop(what=what, module=type(module).__name__, place=user_place())


def _is_out_of_reach(dropout: Module, around: list[Module]) -> bool:
    """Whether no module around it has registered it; a registered one was left on by hand."""
    return (
        bool(around)
        and not around[0].training
        and all(dropout is not module for module in around[-1].modules())
    )


def _forwards(frame: FrameType | None) -> Iterator[Module]:
    """The modules whose ``forward`` is running, the innermost first."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount:
            module = frame.f_locals.get(code.co_varnames[0])
            if isinstance(module, Module):
                yield module
        frame = frame.f_back
