"""On which parameters a value depends although no gradient says so: cuts of the graph.

A function mode sees every call of torch's Python interface and keeps, for each tensor of one step,
the parameters that its value depends on and the places where such a dependence was cut from the
graph (``detach``, ``.data``, ``no_grad``). Values that leave torch (``item``, ``tolist``) and
outputs of a custom ``autograd.Function`` are not followed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from ..facts import Place
from ..taps.hidden import hidden_from_compiler
from ..taps.place import user_place

__all__ = ["ValueCut", "ValueTrace"]

_ADDS = frozenset(
    {"add", "add_", "sub", "sub_", "rsub", "__add__", "__radd__", "__iadd__"}
    | {"__sub__", "__rsub__", "__isub__"}
)
_SCALES = frozenset(
    {"mul", "mul_", "__mul__", "__rmul__", "__imul__", "div", "div_", "__truediv__", "neg"}
    | {"__neg__", "to", "float", "double", "squeeze", "view", "reshape", "mean", "sum", "clone"}
)
_COPIES = frozenset({"detach", "detach_", "__get__"})
_MAX_CUTS = 64
_DEPTH = 3
_TERM_DEPTH = 12
_LOOKS = "nabla_guard.loop."
_CONTAINERS = (tuple, list, Mapping)
_HOLDERS = (Tensor, *_CONTAINERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCut:
    """A place where a value left the graph.

    Attributes:
        serial: number of the cut in its step.
        kind: ``"no_grad"``, or the name of the function, e.g. ``"detach"``.
        parameters: ids of the parameter tensors that the value depends on.
        place: where.
    """

    serial: int
    kind: str
    parameters: frozenset[int]
    place: Place | None


@dataclass(slots=True)
class _Trace:
    parameters: frozenset[int] = frozenset()
    cuts: tuple[ValueCut, ...] = ()
    addends: tuple[Tensor, ...] = ()
    scaled: Tensor | None = None
    stacked: tuple[Tensor, ...] = ()
    copied: bool = False


_NOTHING = _Trace()


@dataclass(slots=True)
class _Step:
    traces: dict[int, tuple[weakref.ref[Tensor], _Trace]] = field(default_factory=dict)
    cuts: int = 0


class ValueTrace(TorchFunctionMode):
    """Follows values from when it is entered to :meth:`forget`."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        super().__init__()
        self._step = _Step()
        self._failed = failed
        self._broken = False

    @hidden_from_compiler
    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        outcome = func(*args, **kwargs) if kwargs else func(*args)
        if not self._broken and _may_hold(outcome) and not _is_a_look(sys._getframe(1)):
            try:
                self._see(func, args, kwargs or {}, outcome)
            except Exception as error:
                self._broken = True
                self._failed(error)
        return outcome

    def forget(self) -> None:
        """Let go of every tensor."""
        self._step = _Step()

    def cuts_of(self, tensor: Tensor) -> tuple[ValueCut, ...]:
        """Return the cuts that the value of ``tensor`` has passed."""
        return self._trace(tensor).cuts

    def addends(self, tensor: Tensor, depth: int = 0) -> Iterator[Tensor]:
        """Yield the scalars whose sum ``tensor`` is, constant factors apart; or itself."""
        trace = self._trace(tensor)
        if depth < _TERM_DEPTH and trace.addends:
            for addend in trace.addends:
                yield from self.addends(addend, depth + 1)
            return
        if depth < _TERM_DEPTH and trace.scaled is not None:
            inner = list(self.addends(trace.scaled, depth + 1))
            if len(inner) > 1:
                yield from inner
                return
        yield tensor

    def is_copy(self, tensor: Tensor) -> bool:
        """Whether a scalar is nothing but a detached one, times constants: that is on purpose."""
        trace = self._trace(tensor)
        for _ in range(_TERM_DEPTH):
            if trace.copied or trace.scaled is None:
                break
            trace = self._trace(trace.scaled)
        return trace.copied

    # ------------------------------------------------------------------ private
    def _trace(self, tensor: Tensor) -> _Trace:
        known = self._step.traces.get(id(tensor))
        if known is not None and known[0]() is tensor:  # else the id belonged to another one
            return known[1]
        is_source = isinstance(tensor, Parameter)
        return _Trace(parameters=frozenset((id(tensor),))) if is_source else _NOTHING

    def _see(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        outcome: object,
    ) -> None:
        outputs = _tensors(outcome)
        if not outputs:
            return
        name = getattr(func, "__name__", "")
        if name.endswith("_like") or name.startswith("new_"):
            return  # the shape of a value is not the value
        inputs = _tensors(args) + _tensors(kwargs) if kwargs else _tensors(args)
        traces = [self._trace(tensor) for tensor in inputs]
        parameters = frozenset().union(*[trace.parameters for trace in traces])
        cuts = {cut.serial: cut for trace in traces for cut in trace.cuts}
        if not parameters and not cuts:
            return
        recorded = any(tensor.requires_grad for tensor in inputs)
        for output in outputs:
            if recorded and parameters and _leaves_graph(output):
                self._cut(name, parameters, cuts)
        for output in outputs:
            if any(output is tensor for tensor in inputs) and name == "__get__":
                continue
            trace = _Trace(parameters=parameters, cuts=tuple(cuts.values())[:_MAX_CUTS])
            trace.copied = name in _COPIES
            self._parts(trace, name, output, inputs)
            # activations must not live longer than they do without us
            self._step.traces[id(output)] = (weakref.ref(output), trace)

    def _cut(self, name: str, parameters: frozenset[int], cuts: dict[int, ValueCut]) -> None:
        self._step.cuts += 1
        kind = name if torch.is_grad_enabled() else "no_grad"
        kind = "detach" if kind in ("__get__", "detach_") else kind
        serial = self._step.cuts
        cuts[serial] = ValueCut(serial=serial, kind=kind, parameters=parameters, place=user_place())

    def _parts(self, trace: _Trace, name: str, output: Tensor, inputs: list[Tensor]) -> None:
        """Note of which scalars a scalar is made."""
        if name == "stack":
            trace.stacked = tuple(tensor for tensor in inputs if tensor.numel() == 1)
        if output.numel() != 1:
            return
        if name in _ADDS:
            trace.addends = tuple(inputs)
        elif name in ("sum", "mean") and len(inputs) == 1 and self._trace(inputs[0]).stacked:
            trace.addends = self._trace(inputs[0]).stacked
        elif name in _SCALES:
            varying = [found for found in inputs if self._trace(found) is not _NOTHING]
            if len(varying) == 1 and varying[0].numel() == 1:
                trace.scaled = varying[0]


def _leaves_graph(output: Tensor) -> bool:
    return output.is_floating_point() and not output.requires_grad


def _is_a_look(caller: FrameType) -> bool:
    """Whether a call is made by what looks at the loop: a third of all in a followed step."""
    name = caller.f_globals.get("__name__")
    return type(name) is str and name.startswith(_LOOKS)


def _may_hold(outcome: object) -> bool:
    """Whether an outcome is or may contain a tensor: most calls in a step ask for a property."""
    return isinstance(outcome, _HOLDERS) and type(outcome) is not torch.Size


def _tensors(value: object) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and mappings, in order."""
    if isinstance(value, Tensor):
        return [value]
    found: list[Tensor] = []
    _collect(value, found, 0)
    return found


def _collect(value: object, found: list[Tensor], depth: int) -> None:
    if depth == _DEPTH or not isinstance(value, _CONTAINERS):
        return
    for item in value.values() if isinstance(value, Mapping) else value:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, _CONTAINERS):
            _collect(item, found, depth + 1)
