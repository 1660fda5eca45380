"""Where the user's code is during a re-execution: line, module, and owner of an autograd node."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import NamedTuple

import torch
from torch.autograd.function import BackwardCFunction
from torch.nn import Module

from nabla_core.issue import Phase

from ..taps.place import Line, user_line
from .module_calls import module_calls
from .naming import paths_of, plain_path

__all__ = ["Site", "Sites", "Spot"]

_CHECKPOINT = "checkpoint.py"
_ENGINE = "_engine_run_backward"
_CALL = Module._call_impl.__code__
_sequence_number = torch._C._autograd._get_sequence_nr  # that the next node of this thread gets


class Site(NamedTuple):
    """Where an op ran.

    Attributes:
        phase: part of the step.
        line: the user's line.
        module: path of the innermost module; ``None`` outside of modules.
        model: class name of the root module.
        call: where the user's code called the root module.
        node: name of the autograd node that ran.
        serial: sequence number of that node, or of the node that the op belongs to.
        in_hook: a hook of the user's runs, not the node itself.
    """

    phase: Phase
    line: Line | None = None
    module: str | None = None
    model: str = ""
    call: Line | None = None
    node: str = ""
    serial: int = -1
    in_hook: bool = False


class Spot:
    """Where one op runs, looked up only when somebody asks.

    Attributes:
        node: the autograd node that runs; ``None`` in a forward pass.

    Args:
        sites: follow the re-execution.
        serial: what :meth:`Sites.note` returned for the op.
    """

    __slots__ = ("_serial", "_site", "_sites", "node")

    def __init__(self, sites: Sites, serial: int) -> None:
        self.node = sites.node()
        self._sites = sites
        self._serial = serial
        self._site: Site | None = None

    @property
    def site(self) -> Site:
        """The place, to be asked for before the op returns."""
        if self._site is None:
            self._site = self._sites.at(self.node, self._serial)
        return self._site


class Sites:
    """Follows a re-execution; the replay says what it is about to do.

    Args:
        boundary: code of the function that executes an entry: frames outside of it belong to the
            training loop itself and are not where the op is.
    """

    def __init__(self, boundary: CodeType) -> None:
        self._boundary = boundary
        self._base = Site("loss")
        self._paths: dict[int, tuple[str, str]] = {}
        self._stack: list[_Entered] = []
        self._owners: dict[int, Site] = {}
        self._outer = torch._C._current_autograd_node()  # of a step inside of a backward pass

    def enter(self, site: Site, root: Module | None = None) -> None:
        """Say what is executed next: a call of ``root``, or a single function."""
        self._base = site
        self._stack.clear()
        if root is not None:
            for name, module in paths_of(root):
                path = plain_path(name)
                self._paths[id(module)] = (site.model, path)  # a backward pass may call it again

    def note(self) -> int:
        """Note where an op is, before it runs, if autograd has just made a node for it.

        Returns:
            The number of that node, else of the last one before it; for :meth:`here`.
        """
        serial = _sequence_number() - 1
        if serial >= 0 and serial not in self._owners:
            self._owners[serial] = self.here(serial)
        return serial

    def here(self, serial: int) -> Site:
        """Return where the op is that is being dispatched.

        Args:
            serial: what :meth:`note` returned for it.
        """
        return self.at(self.node(), serial)

    def node(self) -> torch.autograd.graph.Node | None:
        """Return the autograd node that runs, ``None`` in a forward pass, also in one that is
        computed again."""
        node = torch._C._current_autograd_node()
        return None if node is None or node is self._outer or _recomputing() else node

    def at(self, node: torch.autograd.graph.Node | None, serial: int) -> Site:
        """Return where an op is that runs in a node, or in a forward pass.

        Args:
            node: what :meth:`node` returned for it.
            serial: what :meth:`note` returned for it.
        """
        if node is not None:
            return self._in_backward(node)
        base = self._base
        self._settle()
        model, module = self._stack[-1].place if self._stack else (base.model, base.module)
        line = user_line(self._boundary) or base.line
        return Site(base.phase, line, module, model, base.call, base.node, serial)

    def followed(self) -> AbstractContextManager[None]:
        """Follow which module runs, its own hooks included, during the block."""
        return module_calls(self._enter_module, self._leave_module)

    def _in_backward(self, node: torch.autograd.graph.Node) -> Site:
        serial = node._sequence_nr()
        owner = self._owners.get(serial, Site("backward", self._base.line))
        line = _line_in_node()
        return owner._replace(
            phase="backward",
            line=line or owner.line,
            node=node.name(),
            serial=serial,
            in_hook=line is not None and not _is_users(node),
        )

    def _enter_module(self, module: Module, args: object) -> None:
        self._settle()
        above = (self._base.model, self._base.module or "")
        if self._stack:
            above = self._stack[-1].place
        self._stack.append(_Entered(self._paths.get(id(module), above), id(module)))

    def _leave_module(self, module: Module, args: object, output: object) -> None:
        self._settle()
        if not self._stack:
            return
        if module._forward_hooks:
            self._stack[-1].left = True  # the hooks of the module itself run after this one
        else:
            self._stack.pop()

    def _settle(self) -> None:
        """Leave the modules whose hooks have run."""
        if self._stack and self._stack[-1].left:
            running = _running()
            while self._stack and self._stack[-1].left and self._stack[-1].key not in running:
                self._stack.pop()


@dataclass(slots=True)
class _Entered:
    """A module that was entered; once left, only its hooks may still run."""

    place: tuple[str, str]
    key: int
    left: bool = False


def _running() -> set[int]:
    """The identities of the modules whose calls are on the stack of this thread."""
    found: set[int] = set()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code is _CALL:
            found.add(id(frame.f_locals.get("self")))
        frame = frame.f_back
    return found


def _is_users(node: torch.autograd.graph.Node) -> bool:
    """Whether a node is the derivative of a custom function; torch has such ones for hooks."""
    function = getattr(node, "_forward_cls", None) if isinstance(node, BackwardCFunction) else None
    return function is not None and not function.__module__.startswith("torch.")


def _line_in_node() -> Line | None:
    """The user's line inside a custom ``backward``, when one is running."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == _ENGINE:
            return user_line(frame.f_code)
        frame = frame.f_back
    return None


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
