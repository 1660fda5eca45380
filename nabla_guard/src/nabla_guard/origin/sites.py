"""Where the user's code is during a re-execution: line, module, and owner of an autograd node."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FrameType

import torch
from torch.nn import Module

from nabla_core.issue import Phase

from ..taps.patching import Patches, Replacement
from ..taps.place import Line, user_line

__all__ = ["Site", "Sites"]

_CHECKPOINT = "checkpoint.py"
_ENGINE = "_engine_run_backward"


@dataclass(frozen=True, slots=True)
class Site:
    """Where an op ran.

    Attributes:
        phase: part of the step.
        line: the user's line.
        module: path of the innermost module; ``None`` outside of modules.
        model: class name of the root module.
        call: where the user's code called the root module.
        node: name of the autograd node that ran.
        serial: sequence number of that node, or of the node that the op belongs to.
    """

    phase: Phase
    line: Line | None = None
    module: str | None = None
    model: str = ""
    call: Line | None = None
    node: str = ""
    serial: int = -1


class Sites:
    """Follows a re-execution; the replay says what it is about to do.

    Args:
        boundary: code of the function that executes an entry: frames outside of it belong to the
            training loop itself and are not where the op is.
    """

    def __init__(self, boundary: CodeType) -> None:
        self._boundary = frozenset({boundary})
        self._base = Site("loss")
        self._paths: dict[int, tuple[str, str]] = {}
        self._stack: list[tuple[str, str]] = []
        self._owners: dict[int, Site] = {}
        self._outer = torch._C._current_autograd_node()  # of a step inside of a backward pass

    def enter(self, site: Site, root: Module | None = None) -> None:
        """Say what is executed next: a call of ``root``, or a single function."""
        self._base = site
        self._stack.clear()
        if root is not None:
            for name, module in root.named_modules():
                path = name.replace("_orig_mod.", "").replace("_orig_mod", "")
                self._paths[id(module)] = (site.model, path)  # a backward pass may call it again

    def here(self) -> Site:
        """Return where the op is that is being dispatched."""
        node = torch._C._current_autograd_node()
        if node is not None and node is not self._outer and not _recomputing():
            site = self._in_backward(node)
        else:
            base = self._base
            model, module = self._stack[-1] if self._stack else (base.model, base.module)
            site = replace(
                base,
                line=user_line(self._boundary) or base.line,
                module=module,
                model=model,
                serial=_sequence_number() - 1,
            )
        serial = _sequence_number() - 1
        if serial >= 0:
            self._owners.setdefault(serial, site)
        return site

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow which module runs, its hooks included, during the block."""
        patches = Patches()
        patches.replace(Module, "__call__", self._followed)
        try:
            yield
        finally:
            patches.restore()

    def _in_backward(self, node: torch.autograd.graph.Node) -> Site:
        serial = node._sequence_nr()
        owner = self._owners.get(serial, Site("backward", self._base.line))
        return replace(
            owner,
            phase="backward",
            line=_line_in_node() or owner.line,
            node=node.name(),
            serial=serial,
        )

    def _followed(self, original: Replacement) -> Replacement:
        def call(module: Module, *args: object, **kwargs: object) -> object:
            above = self._stack[-1] if self._stack else (self._base.model, self._base.module or "")
            self._stack.append(self._paths.get(id(module), above))
            try:
                return original(module, *args, **kwargs)
            finally:
                if self._stack:
                    self._stack.pop()

        return call


def _sequence_number() -> int:
    """The number that the next autograd node of this thread will get."""
    return int(torch._C._autograd._get_sequence_nr())


def _line_in_node() -> Line | None:
    """The user's line inside a custom ``backward``, when one is running."""
    frame: FrameType | None = sys._getframe(2)
    codes = set()
    while frame is not None:
        if frame.f_code.co_name == _ENGINE:
            codes.add(frame.f_code)
            break
        frame = frame.f_back
    return user_line(frozenset(codes)) if codes else None


def _recomputing() -> bool:
    """Whether checkpointing is computing a forward pass again inside of a backward pass."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == _ENGINE:
            return False
        if code.co_filename.endswith(_CHECKPOINT) and "torch" in code.co_filename:
            return True
        frame = frame.f_back
    return False
