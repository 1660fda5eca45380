"""Where the value of a parameter leaves the graph on its way to the loss.

For one step a function mode follows the values that depend on parameters which never got a
gradient. It is used only when there are such parameters, and never together with ``torch.compile``.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from ..facts import ParameterFacts, Place
from ..loop.exact import tensors_in
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.hidden import hidden_from_compiler
from ..taps.place import user_place
from .dependence import Call, depends_on
from .gradient_switch import switched_off_by
from .graph import nodes_from

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["Cut", "CutWatch"]

_ASKED_AFTER = 2
_LEAVES = frozenset({"tolist", "numpy", "item", "__array__", "cpu_numpy"})
_MAX_TENSORS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The place at which a value lost its gradient.

    Attributes:
        place: line of the user's source.
        kind: name of the function; where gradients were switched off, ``"no_grad"``, or what
            switched them off without the program's asking: ``"checkpoint"`` for a reentrant one
            none of whose inputs takes a gradient, ``"sample"`` for a draw from a distribution.
    """

    place: Place | None
    kind: str


_Trace = dict[int, Cut | None]
"""For each parameter that a value depends on (by ``id``): where it was cut off, if it was."""


class CutWatch(Watch):
    """Follows, in the third step of an optimizer, its parameters that have no gradient so far."""

    follows = True

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._mode: _CutMode | None = None
        self._retired: list[_CutMode] = []
        self._found: dict[int, Cut] = {}
        self._left: dict[int, Cut] = {}
        self._call: Call | None = None
        self._names: dict[int, str] = {}
        self._used: set[int] = set()
        self.compiled = False

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self._mode or self._retired else EVERY_EVENT

    def cut(self, parameter: ParameterFacts) -> Cut | None:
        """Return where ``parameter`` was cut off, if the loss depends on it through a cut."""
        return self._found.get(id(parameter))

    def lost(self, parameter: ParameterFacts) -> Cut | None:
        """Return where its values were turned into numbers, if the loss's inputs depend on them.

        Runs the root module's forward pass twice, without gradients, on copies of its state.
        """
        cut = self._left.get(id(parameter))
        if cut is None or self._call is None:
            return None
        return cut if depends_on(self._call, parameter.name) else None

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self._pop()
        if record.judged and record.facts.steps + 1 == _ASKED_AFTER and not self._mode:
            dead = {
                id(parameter): id(found.facts)
                for found in record.records
                if not found.facts.writes
                and (parameter := found.ref()) is not None
                and parameter.requires_grad
            }
            self.compiled = _compiles()
            if dead and not self.compiled:
                self._mode = _CutMode(dead)
                enter: Callable[[], object] = self._mode.__enter__
                enter()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """See :class:`.watch.Watch`."""
        if self._mode is not None and torch.is_grad_enabled() and root.facts.parameters:
            output = [tensor for _, tensor in tensors_in(self.loop.watches.output)]
            self._call = Call(module=module, args=args, kwargs=kwargs, output=output)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.watch.Watch`."""
        if self._mode is None:
            return
        for root in roots:
            for key, cut in self._mode.trace(root).items():
                if cut is not None:
                    self._found.setdefault(self._mode.dead[key], cut)
        self._left |= {self._mode.dead[key]: cut for key, cut in self._mode.left.items()}
        if self._call is not None:
            tops = [root.grad_fn for root in roots if root.grad_fn is not None]
            self._call = self._call.feeding(set(nodes_from(tops)))

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self._pop()

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self._pop()
        self._call = None

    def _pop(self) -> None:
        """Leave the mode; where the user's own mode lies above it, later."""
        if self._mode is not None:
            self._mode.end()
            self._retired.append(self._mode)
            self._mode = None
        current: Callable[[], object] = _get_current_function_mode
        while self._retired and current() is self._retired[-1]:
            leave: Callable[..., object] = self._retired.pop().__exit__
            leave(None, None, None)


class _CutMode(TorchFunctionMode):
    """Follows the values that depend on a few parameters.

    Args:
        dead: ``id`` of each parameter, and of its facts.
    """

    def __init__(self, dead: dict[int, int]) -> None:
        super().__init__()
        self.dead = dead
        self.left: dict[int, Cut] = {}
        self._traces: dict[int, tuple[weakref.ref[Tensor], _Trace]] = {}
        self._ended = False

    def end(self) -> None:
        """Let go of all tensors and do nothing from now on."""
        self._ended = True
        self._traces.clear()

    def trace(self, tensor: Tensor) -> _Trace:
        """Return the parameters that ``tensor`` depends on."""
        if id(tensor) in self.dead:
            return {id(tensor): None}
        known = self._traces.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else {}

    @hidden_from_compiler
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._ended and len(self._traces) < _MAX_TENSORS:
            self._follow(getattr(func, "__name__", ""), (args, kwargs or {}), result)
        return result

    def _follow(self, name: str, given: object, result: object) -> None:
        inputs = [tensor for _, tensor in tensors_in(given)]
        trace: _Trace = {}
        for tensor in inputs:
            for key, cut in self.trace(tensor).items():
                trace[key] = _louder(trace.get(key), cut)
        if not trace:
            return
        outputs = [tensor for _, tensor in tensors_in(result)]
        name = "data" if name == "__get__" else name
        if not outputs:
            if name in _LEAVES:
                cut = Cut(place=user_place(), kind=name)
                self.left |= {key: cut for key in trace if key not in self.left}
            return
        recorded = any(tensor.requires_grad for tensor in inputs)
        if recorded and not any(tensor.requires_grad for tensor in outputs):
            kind = name if torch.is_grad_enabled() else switched_off_by(sys._getframe(2))
            cut = Cut(place=user_place(), kind=kind)
            trace = {key: cut if known is None else known for key, known in trace.items()}
        for tensor in outputs:
            if id(tensor) not in self.dead:
                self._traces[id(tensor)] = (weakref.ref(tensor), trace)


def _louder(first: Cut | None, second: Cut | None) -> Cut | None:
    """Of two ways a value took, the one that was not cut on purpose is the one to tell."""
    if first is None or second is None:
        return first or second
    return second if first.kind == "no_grad" else first


def _compiles() -> bool:
    """Whether anything in the process was compiled: the compiler would trace a function mode."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    return bool(counters and counters["frames"])
