"""What an operator is called with, and which of it is differentiated."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from nabla_core.errors import UsageError

from .callee import Callee
from .layouts import copy_as_is
from .specs import TensorSpec, draw
from .tree import Tree, flatten

__all__ = ["Operands", "Values", "is_differentiable", "widened"]

Values = tuple[torch.Tensor, ...]
"""Differentiable operands, in the order of :attr:`Operands.live`."""

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_COMPLEX_OF = {
    torch.float64: torch.complex128,
    torch.float32: torch.complex64,
    torch.float16: torch.complex32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Arguments and module state as one flat list.

    Attributes:
        tree: ``(args, kwargs, state)``; the leaves hold the caller's own tensors, never written to.
        names: how messages call each leaf.
        live: indices of the leaves that are differentiated.
        frozen: indices of the other tensors.
        assumed: live leaves that were not marked: when no input requires a gradient, all floating
            ones are differentiated, and a missing gradient is no fault of theirs.
    """

    tree: Tree
    names: tuple[str, ...]
    live: tuple[int, ...]
    frozen: tuple[int, ...]
    assumed: frozenset[int]

    @property
    def live_names(self) -> tuple[str, ...]:
        """Names of the differentiable operands."""
        return tuple(self.names[index] for index in self.live)

    def originals(self) -> Values:
        """Return the differentiable tensors as given, detached, memory shared with the caller."""
        return tuple(self._tensor(index).detach() for index in self.live)

    def values(self) -> Values:
        """Return fresh copies of the differentiable tensors that require a gradient."""
        return tuple(copy_as_is(self._tensor(index)).requires_grad_() for index in self.live)

    def leaves_with(self, values: Sequence[torch.Tensor]) -> list[object]:
        """Return all leaves, ``values`` in place of the live ones, copies of the frozen ones."""
        leaves = list(self.tree.leaves)
        for index in self.frozen:
            leaves[index] = copy_as_is(self._tensor(index))
        for index, value in zip(self.live, values, strict=True):
            leaves[index] = value
        return leaves

    def call(
        self, leaves: Sequence[object]
    ) -> tuple[tuple[object, ...], dict[str, object], dict[str, torch.Tensor]]:
        """Return positional arguments, keyword arguments and module state made of ``leaves``."""
        nest = self.tree.build(leaves)
        args, kwargs, state = cast(
            "tuple[tuple[object, ...], dict[str, object], dict[str, torch.Tensor]]", nest
        )
        return args, kwargs, state

    def replaced(self, leaves: Mapping[int, object]) -> Operands:
        """Return operands in which some leaves are others."""
        new = [leaves.get(index, leaf) for index, leaf in enumerate(self.tree.leaves)]
        return replace(self, tree=replace(self.tree, leaves=tuple(new)))

    def with_values(self, values: Iterable[torch.Tensor]) -> Operands:
        """Return operands with other differentiable tensors."""
        return self.replaced(dict(zip(self.live, values, strict=True)))

    def only(self, live: Sequence[int]) -> Operands:
        """Return operands of which only the leaves ``live`` are differentiated."""
        return replace(self, live=tuple(live), frozen=_frozen(self.tree.leaves, live))

    def cast(self, dtype: torch.dtype) -> Operands:
        """Return operands with every floating tensor in ``dtype``, complex in its partner."""
        return self.replaced(
            {
                index: _cast(leaf, dtype)
                for index, leaf in enumerate(self.tree.leaves)
                if isinstance(leaf, torch.Tensor)
            }
        )

    @classmethod
    def gather(
        cls,
        callee: Callee,
        inputs: object,
        kwargs: Mapping[str, object],
        generator: torch.Generator,
    ) -> Operands:
        """Flatten the inputs of a check; recipes are drawn, module state is appended.

        Raises:
            UsageError: ``inputs`` is neither a sequence nor a mapping nor a tensor, or a sparse or
                nested tensor requires a gradient.
        """
        args = _positional(inputs)
        if args is None:
            args, kwargs = (), {**_keyword(inputs), **kwargs}
        state = callee.state()
        tree = flatten((args, dict(kwargs), state), atoms=(TensorSpec,))
        drawn = [draw(x, generator) if isinstance(x, TensorSpec) else x for x in tree.leaves]
        tree = replace(tree, leaves=tuple(drawn))
        names = _readable(tree.names, callee)
        marked = [i for i, leaf in enumerate(drawn) if _requires_grad(leaf)]
        for index in marked:
            _must_be_strided(names[index], drawn[index])
        assumed: list[int] = []
        if all(names[index] in state for index in marked):
            assumed = [
                index
                for index, leaf in enumerate(drawn)
                if is_differentiable(leaf) and _is_strided(leaf) and names[index] not in state
            ]
        live = tuple(sorted({*marked, *assumed}))
        return cls(
            tree=tree,
            names=names,
            live=live,
            frozen=_frozen(drawn, live),
            assumed=frozenset(assumed),
        )

    def _tensor(self, index: int) -> torch.Tensor:
        leaf = self.tree.leaves[index]
        if not isinstance(leaf, torch.Tensor):
            raise UsageError(f"{self.names[index]} is {type(leaf).__name__}, not a tensor")
        return leaf


def is_differentiable(leaf: object) -> bool:
    """Whether ``leaf`` is a tensor of a floating or complex dtype."""
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def widened(tensors: Iterable[torch.Tensor]) -> Values:
    """Return copies in float64 or complex128."""
    return tuple(x.detach().to(_WIDE.get(x.dtype, x.dtype)) for x in tensors)


def _frozen(leaves: Sequence[object], live: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        index
        for index, leaf in enumerate(leaves)
        if index not in live and isinstance(leaf, torch.Tensor)
    )


def _requires_grad(leaf: object) -> bool:
    return is_differentiable(leaf) and isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _is_strided(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided


def _must_be_strided(name: str, leaf: object) -> None:
    if isinstance(leaf, torch.Tensor) and not _is_strided(leaf):
        kind = str(leaf.layout).removeprefix("torch.")
        raise UsageError(
            f"{name} is {kind} and requires a gradient, only dense tensors can be differentiated: "
            "give its values as a dense input and build it inside the candidate, or give it "
            "without requires_grad"
        )


def _positional(inputs: object) -> tuple[object, ...] | None:
    if isinstance(inputs, (torch.Tensor, TensorSpec)):
        return (inputs,)
    if isinstance(inputs, (list, tuple)):
        return tuple(inputs)
    if isinstance(inputs, Mapping):
        return None
    raise UsageError(
        f"inputs is {type(inputs).__name__}: give a list of tensors, recipes and other arguments, "
        "or a mapping of keyword arguments"
    )


def _keyword(inputs: object) -> dict[str, object]:
    return {str(key): value for key, value in inputs.items()} if isinstance(inputs, Mapping) else {}


_PATH = re.compile(r"(\d)\['?(.*?)'?\](.*)$")


def _readable(paths: Sequence[str], callee: Callee) -> tuple[str, ...]:
    """Turn paths like ``0[1].w`` into the parameter names of the candidate where they are known."""
    labels = _argument_names(callee)
    names = []
    for path in paths:
        found = _PATH.match(path)
        root, key, tail = found.groups() if found else ("", path, "")
        if root == "0":
            number = int(key)
            key = labels[number] if number < len(labels) else f"input{number}"
        names.append(key + tail)
    return tuple(names)


def _argument_names(callee: Callee) -> list[str]:
    function = callee.function
    schema = _schema(function)
    if schema is not None:
        return [argument.name for argument in schema.arguments]
    owner = getattr(function, "__self__", None)
    if isinstance(function, torch.nn.Module):
        function = function.forward
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        names = _signature(owner.forward)
        return names if getattr(owner, "setup_context", None) is not _BASE_SETUP else names[1:]
    return _signature(function)


def _schema(function: object) -> torch.FunctionSchema | None:
    """Return the schema of a ``torch.library`` operator, or of one of torch's own functions."""
    function = getattr(function, "__wrapped__", function)
    function = getattr(function, "_opoverload", function)
    if isinstance(function, types.BuiltinFunctionType):
        of_torch = str(function.__module__).startswith("torch")
        function = getattr(torch.ops.aten, function.__name__, None) if of_torch else None
    if isinstance(function, torch._ops.OpOverloadPacket):
        names = function.overloads()  # type: ignore[no-untyped-call]
        function = getattr(function, names[0]) if names else None
    return function._schema if isinstance(function, torch._ops.OpOverload) else None


_BASE_SETUP = torch.autograd.Function.setup_context


def _signature(function: object) -> list[str]:
    code = getattr(function, "__code__", None)
    if code is not None and not hasattr(function, "__wrapped__"):
        bound = int(hasattr(function, "__self__"))  # the first name of a method is not an argument
        return list(code.co_varnames[bound : code.co_argcount])
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    fixed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in fixed]


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> object:
    if tensor.is_complex():
        wanted = _COMPLEX_OF.get(dtype)
    else:
        wanted = dtype if tensor.is_floating_point() else None
    if wanted is None or wanted is tensor.dtype:
        return tensor
    return tensor.detach().to(wanted).requires_grad_(tensor.requires_grad)
