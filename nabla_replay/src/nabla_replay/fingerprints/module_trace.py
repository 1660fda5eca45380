"""Fingerprints every call of every module in one step, forward and backward.

Nothing is attached to a module and the graph stays as it is: what ``Module.__call__`` hands on to
is replaced, so that outputs are seen as they are after all hooks; gradients are seen on the nodes
that a call made.
A full backward hook would put nodes of its own into the graph, and a program that works in place on
an output would fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.nn import Module

from nabla_guard.origin.naming import is_compiled
from nabla_guard.taps.patching import Patches, Replacement

from .call_record import CallKey, ModuleCall, StepTrace
from .fingerprinter import Algorithm
from .lazy_hash import LazyHash, combined, lazy_hash, read_hashes

__all__ = ["ModuleTrace", "can_be_traced"]

_MAX_NODES = 4096
_MAX_CALLS = (
    20_000  # of one step; more are not packed, and a step that never ends must not fill memory
)
_MAX_DEPTH = 4

Edge: TypeAlias = "tuple[Node, int]"


def can_be_traced(model: Module) -> bool:
    """Whether the calls of a model's modules can be seen: not inside compiled ones."""
    return not any(map(is_compiled, model.modules()))


class _Call:
    """One call while its step is running."""

    __slots__ = ("edges", "grads_in", "grads_out", "inputs", "key", "outputs")

    def __init__(self, key: CallKey, inputs: list[LazyHash], edges: list[Edge]) -> None:
        self.key = key
        self.inputs = inputs
        self.edges = edges
        self.outputs: list[LazyHash] = []
        self.grads_out: dict[int, LazyHash] = {}
        self.grads_in: dict[tuple[int, int], LazyHash] = {}


class ModuleTrace:
    """Traces one step of a model, between :meth:`start` and :meth:`stop`.

    Only calls with gradients on are traced: evaluations between two steps are not part of one.

    Args:
        model: the model.
        algorithm: how to fingerprint.

    Attributes:
        paths: of all modules, in the model's own order.
        spoilt: a call raised, or there were too many: the trace is empty, and says nothing.
    """

    def __init__(self, model: Module, algorithm: Algorithm) -> None:
        self._model = model
        self._algorithm = algorithm
        self._paths = {id(module): path for path, module in model.named_modules()}
        self.paths = tuple(self._paths.values())
        self._counts: dict[str, int] = {}
        self._calls: list[_Call] = []
        self._backward: dict[CallKey, None] = {}
        self._patches = Patches()
        self._active = False
        self.spoilt = False
        self._thread = threading.get_ident()

    def start(self) -> None:
        """Begin to look."""
        self._active = True
        # Module.__call__ only hands on to it; replacing that would have every class of modules
        # look its slots up anew
        self._patches.replace(Module, "_call_impl", self._wrap)

    def abandon(self) -> None:
        """Stop looking, and forget what was seen."""
        self._active = False
        self._patches.restore()
        self._calls = []

    def stop(self) -> StepTrace:
        """Stop looking, and return what the step gave; gradients of parameters are those of now."""
        calls = self._calls
        self.abandon()
        if self.spoilt:
            return StepTrace()
        rows = [self._hashes(call) for call in calls]
        flat = read_hashes([value for row in rows for group in row for value in group])
        values = iter(flat)
        found: dict[CallKey, ModuleCall] = {}
        for call, row in zip(calls, rows, strict=True):
            groups = [[next(values) for _ in group] for group in row]
            found[call.key] = ModuleCall(*(combined(group) if group else None for group in groups))
        return StepTrace(calls=found, backward=tuple(self._backward), gradients=self._gradients())

    def _spoil(self) -> None:
        """Nothing can be said about this step any more."""
        self.abandon()
        self._backward.clear()
        self.spoilt = True

    # ------------------------------------------------------------------ forward
    def _wrap(self, original: Replacement) -> Replacement:
        def call(module: Module, *args: object, **kwargs: object) -> object:
            if torch.compiler.is_compiling() or not self._sees(module):
                return original(module, *args, **kwargs)
            begun = self._begin(module, (args, kwargs))
            try:
                output = original(module, *args, **kwargs)
            except BaseException:
                self._spoil()  # what is tried again after it would get other numbers in a replay
                raise
            self._end(begun, output)
            return output

        return call

    def _begin(self, module: Module, given: object) -> _Call:
        path = self._paths[id(module)]
        self._counts[path] = number = self._counts.get(path, 0) + 1
        tensors = list(_tensors(given))
        edges = [(one.grad_fn, one.output_nr) for one in tensors if one.grad_fn is not None]
        return _Call((path, number), [self._hash(one) for one in tensors], edges)

    def _end(self, call: _Call, output: object) -> None:
        if not self._active:
            return
        outputs = list(_tensors(output))
        call.outputs = [self._hash(one) for one in outputs]
        self._calls.append(call)
        self._follow(call, outputs)
        if len(self._calls) > _MAX_CALLS:
            self._spoil()

    def _sees(self, module: Module) -> bool:
        return (
            self._active
            and id(module) in self._paths
            and torch.is_grad_enabled()
            and threading.get_ident() == self._thread
        )

    # ------------------------------------------------------------------ backward
    def _follow(self, call: _Call, outputs: list[Tensor]) -> None:
        inputs = {(node, number): index for index, (node, number) in enumerate(call.edges)}
        roots: list[Node] = []
        for index, output in enumerate(outputs):
            node = output.grad_fn
            if node is None or (node, output.output_nr) in inputs:
                continue  # handed through
            node.register_prehook(self._grad_reached(call, index, output.output_nr))
            roots.append(node)
        for node, slot, index in _entries(roots, inputs):
            node.register_hook(self._grad_left(call, index, slot))
        call.edges = []  # the graph must not live longer because of us

    def _grad_reached(self, call: _Call, index: int, number: int) -> Callable[..., None]:
        def look(grads: tuple[Tensor | None, ...]) -> None:
            grad = grads[number] if number < len(grads) else None
            if grad is not None:
                call.grads_out[index] = self._hash(grad)
                self._note(call)

        return look

    def _grad_left(self, call: _Call, index: int, slot: int) -> Callable[..., None]:
        def look(grads: tuple[Tensor | None, ...], _: tuple[Tensor | None, ...]) -> None:
            grad = grads[slot] if slot < len(grads) else None
            if grad is not None:
                call.grads_in[index, len(call.grads_in)] = self._hash(grad)
                self._note(call)

        return look

    def _note(self, call: _Call) -> None:
        """Keep the order in which the calls were done with."""
        self._backward.pop(call.key, None)
        self._backward[call.key] = None

    # ------------------------------------------------------------------ private
    def _hash(self, tensor: Tensor) -> LazyHash:
        return lazy_hash(tensor, self._algorithm)

    def _hashes(self, call: _Call) -> list[list[LazyHash]]:
        grads_out = [value for _, value in sorted(call.grads_out.items(), key=lambda pair: pair[0])]
        grads_in = [value for _, value in sorted(call.grads_in.items(), key=lambda pair: pair[0])]
        return [call.inputs, call.outputs, grads_out, grads_in]

    def _gradients(self) -> dict[str, int]:
        names: list[str] = []
        hashes: list[LazyHash] = []
        for path, module in self._model.named_modules():
            for parameter in module.parameters(recurse=False):
                if parameter.grad is not None:
                    names.append(path)
                    hashes.append(self._hash(parameter.grad))
        found: dict[str, list[int]] = {}
        for path, value in zip(names, read_hashes(hashes), strict=True):
            found.setdefault(path, []).append(value)
        return {path: combined(values) for path, values in found.items()}


def _entries(roots: list[Node], inputs: Mapping[Edge, int]) -> Iterator[tuple[Node, int, int]]:
    """Yield node, slot and input for each place where a call's computation meets its inputs."""
    known = dict.fromkeys(roots)
    waiting = list(known)
    while waiting and len(known) <= _MAX_NODES:
        node = waiting.pop()
        for slot, (upstream, number) in enumerate(node.next_functions):
            if upstream is None:
                continue
            index = inputs.get((upstream, number))
            if index is not None:
                yield node, slot, index
            elif upstream not in known:
                known[upstream] = None
                waiting.append(upstream)


def _tensors(value: object, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
        for entry in value:
            yield from _tensors(entry, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        for entry in value.values():
            yield from _tensors(entry, depth + 1)
