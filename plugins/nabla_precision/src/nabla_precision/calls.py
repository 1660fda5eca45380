"""Calls of modules inside a model: recorded as a tree, and answered from that record.

``torch.nn.Module.__call__`` is replaced for the length of an audit, so nothing is attached to the
modules of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Module

from nabla_core.errors import NablaError

from .restoring import device_states
from .tree import Tree, mapped, tensors_in

__all__ = ["Frame", "NotRepeatable", "Recorder", "answering", "calls_replaced", "replaced_call"]

Original = Callable[..., object]
Replacement = Callable[[Original, Module, tuple[object, ...], dict[str, object]], object]


class NotRepeatable(NablaError):
    """A module that is run again calls other modules than before."""


@dataclass(slots=True, eq=False)
class Frame:
    """One call of one module in the reference pass.

    Attributes:
        module: the module.
        path: its dotted path in the model.
        given: positional and keyword arguments, detached.
        output: what it returned, detached.
        children: calls of modules that it made, in order.
        grads: gradient of the loss by the position of the output's tensor; those that are known.
        input_grads: gradient that this call passes back, by the position of the input's tensor.
        random: states of the generators at its beginning, if it drew numbers.
        overwrites: whether it changed its own input in place.
        inputs_need_grad: whether each tensor among the arguments is part of the graph.
    """

    module: Module
    path: str
    given: tuple[tuple[object, ...], dict[str, object]] = ((), {})
    output: object = None
    children: list[Frame] = field(default_factory=list)
    grads: dict[int, Tensor] = field(default_factory=dict)
    input_grads: dict[int, Tensor] = field(default_factory=dict)
    random: tuple[Tensor, ...] | None = None
    overwrites: bool = False
    inputs_need_grad: list[bool] = field(default_factory=list)

    @property
    def is_leaf(self) -> bool:
        """Whether it called no module."""
        return not self.children

    def release(self) -> None:
        """Let go of the tensors; the caller must have been measured, which answers from them."""
        self.given, self.output = ((), {}), None
        self.grads, self.input_grads, self.random = {}, {}, None

    @property
    def results(self) -> list[Tensor]:
        """What its own code computed: what it gave to other modules, and what it returned."""
        passed = [tensor for child in self.children for tensor in tensors_in(child.given)]
        return [*passed, *tensors_in(self.output)]

    @property
    def cotangents(self) -> dict[int, Tensor]:
        """Gradients of the loss by the position among the results; those that are known."""
        found: dict[int, Tensor] = {}
        first = 0
        for child in self.children:
            found |= {first + position: grad for position, grad in child.input_grads.items()}
            first += len(tensors_in(child.given))
        return found | {first + position: grad for position, grad in self.grads.items()}


class _Switch:
    """Who answers calls of modules now.

    ``Module.__call__`` is replaced once per audit: doing so empties the method caches of all its
    subclasses, which takes as long as many calls.
    """

    handler: Replacement | None = None


def _is_transformed() -> bool:
    """Whether a call is made inside ``torch.func.vmap`` or the like.

    Its tensors have no values outside: it belongs to the code of the module that transforms it.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


@contextmanager
def calls_replaced() -> Iterator[None]:
    """Make :func:`replaced_call` work inside the block, but for calls that are transformed."""
    original: Original = Module.__call__

    def call(module: Module, *args: object, **kwargs: object) -> object:
        handler = _Switch.handler
        if handler is None or _is_transformed():
            return original(module, *args, **kwargs)
        return handler(original, module, args, kwargs)

    Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        Module.__call__ = original  # type: ignore[method-assign]


@contextmanager
def replaced_call(replacement: Replacement) -> Iterator[None]:
    """Let ``replacement`` answer every call of a module inside the block."""
    before, _Switch.handler = _Switch.handler, replacement
    try:
        yield
    finally:
        _Switch.handler = before


class Recorder:
    """Records a forward pass.

    Attributes:
        frames: all calls, each before the calls that it made.

    Args:
        model: names the paths.
        copies: keep copies, not views, of what in-place operations may overwrite later.
    """

    def __init__(self, model: Module, *, copies: bool) -> None:
        self.frames: list[Frame] = []
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stack: list[Frame] = []
        self._copies = copies
        self._versions: list[tuple[Tensor, int]] = []

    @property
    def was_overwritten(self) -> bool:
        """Whether something that was kept has been changed since."""
        return any(tensor._version != version for tensor, version in self._versions)

    def call(
        self,
        original: Original,
        module: Module,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Make one call and keep what went in and out."""
        frame = self._open(module, args, kwargs)
        args, kwargs = self._listened(frame, (args, kwargs))
        given = tensors_in((args, kwargs))
        versions = [tensor._version for tensor in given]
        before = device_states()
        self._stack.append(frame)
        try:
            output = original(module, *args, **kwargs)
        finally:
            self._stack.pop()
        if not all(torch.equal(a, b) for a, b in zip(before, device_states(), strict=False)):
            frame.random = before
        moved = [t._version != version for t, version in zip(given, versions, strict=True)]
        frame.overwrites = any(moved)
        frame.output = self._kept(output)
        self._listen(frame, output)
        return output

    # ------------------------------------------------------------------ private
    def _open(self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Frame:
        frame = Frame(module=module, path=self._paths.get(id(module), type(module).__name__))
        frame.inputs_need_grad = [tensor.requires_grad for tensor in tensors_in((args, kwargs))]
        frame.given = self._kept((args, kwargs))
        if self._stack:
            self._stack[-1].children.append(frame)
        self.frames.append(frame)
        return frame

    def _kept(self, tree: Tree) -> Tree:
        known: dict[int, Tensor] = {}  # what was one object stays one object

        def keep(tensor: Tensor) -> Tensor:
            kept = known.get(id(tensor))
            if kept is None:
                kept = tensor.detach().clone() if self._copies else tensor.detach()
                known[id(tensor)] = kept
                self._versions.append((kept, kept._version))
            return kept

        return mapped(tree, keep)

    def _listened(self, frame: Frame, given: Tree) -> Tree:
        """Give a call aliases of its arguments, which see the gradient of this call alone."""
        if not self._stack:
            return given
        aliases: dict[int, Tensor] = {}  # what was one object stays one object
        positions = iter(range(len(tensors_in(given))))

        def alias(tensor: Tensor) -> Tensor:
            position = next(positions)
            if not tensor.requires_grad or tensor.is_leaf:
                return tensor
            known = aliases.get(id(tensor))
            if known is None:
                known = aliases[id(tensor)] = tensor.view_as(tensor)
                known.register_hook(_into(frame.input_grads, position))  # type: ignore[no-untyped-call]
            return known

        return mapped(given, alias)

    @staticmethod
    def _listen(frame: Frame, output: object) -> None:
        for position, tensor in enumerate(tensors_in(output)):
            if tensor.requires_grad:
                tensor.register_hook(_into(frame.grads, position))  # type: ignore[no-untyped-call]


@contextmanager
def answering(frame: Frame, cast: Callable[[Tensor], Tensor]) -> Iterator[list[Tensor]]:
    """Answer the calls that ``frame``'s module makes with what they returned, cast.

    Yields:
        The tensors that are given to those calls, as they come.

    Raises:
        NotRepeatable: other modules are called than before.
    """
    inside = False
    passed: list[Tensor] = []
    coming = iter(frame.children)

    def call(
        original: Original, module: Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        nonlocal inside
        if not inside:
            inside = True
            return original(module, *args, **kwargs)
        child = next(coming, None)
        if child is None or child.module is not module:
            raise NotRepeatable("it calls other modules when it is run again")
        passed.extend(tensors_in((args, kwargs)))
        return mapped(child.output, cast)

    with replaced_call(call):
        yield passed


def _into(grads: dict[int, Tensor], position: int) -> Callable[[Tensor], None]:
    def note(grad: Tensor) -> None:
        grads[position] = grad.detach()

    return note
