"""What a person hands over as a batch, and how model and loss are called with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType

import torch
from torch import Tensor
from torch.nn import Module

from nabla_core.errors import UsageError

__all__ = ["Batch", "LossFunction", "outputs_in", "part_of", "read_batch"]

LossFunction = Callable[..., Tensor]
"""``loss_fn(output, targets)``, or ``loss_fn(output)`` for a batch without targets."""

_TARGETS = ("labels", "label", "targets", "target", "y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch, taken apart.

    Attributes:
        args: positional inputs of the model.
        kwargs: inputs of the model by name.
        targets: second argument of the loss.
        has_targets: whether the loss gets one.
        samples: batch size.
    """

    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object]
    targets: object = None
    has_targets: bool = False
    samples: int = 0

    def tensors(self) -> list[Tensor]:
        """Return all tensors."""
        return list(outputs_in((self.args, self.kwargs, self.targets)))

    def take(self, indices: Sequence[int]) -> Batch:
        """Return the batch of some of its samples."""

        def part(value: object) -> object:
            return part_of(value, indices, self.samples)

        return replace(
            self,
            args=tuple(part(value) for value in self.args),
            kwargs={name: part(value) for name, value in self.kwargs.items()},
            targets=part(self.targets),
            samples=len(indices),
        )

    def loss(self, output: object, loss_fn: LossFunction | None) -> Tensor:
        """Return the loss of an output.

        Raises:
            UsageError: it is no tensor.
        """
        if loss_fn is None:
            found = getattr(output, "loss", output)
        elif self.has_targets:
            found = loss_fn(output, self.targets)
        else:
            found = loss_fn(output)
        if not isinstance(found, Tensor):
            raise UsageError(f"the loss is a {type(found).__name__}: it must be a tensor")
        return found


def outputs_in(value: object) -> Iterator[Tensor]:
    """Yield every tensor in nested lists, tuples, mappings and outputs of transformers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from outputs_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from outputs_in(part)


def part_of(value: object, indices: Sequence[int], samples: int) -> object:
    """Return some of the samples of nested tensors; what has no axis of samples stays as it is.

    Args:
        value: tensors in lists, tuples and mappings.
        indices: which samples.
        samples: batch size; the first axis of that length is that of the samples.
    """
    return _take(value, torch.tensor(indices), samples)


def read_batch(model: Module, loss_fn: LossFunction | None, batch: object) -> Batch:
    """Take a batch apart.

    A tensor is the only input. The last part of a tuple is the targets when the loss takes a
    second argument, everything before it goes to the model, one argument each; a list, tuple or
    mapping there is unpacked. A mapping goes to the model by name, except for a key like
    ``labels`` that only the loss wants.

    Args:
        model: to be called.
        loss_fn: ``None`` when the model returns its loss.
        batch: see above.

    Raises:
        UsageError: there is no tensor in it, or no target for a loss that needs one.
    """
    wants = _wants_targets(loss_fn)
    if isinstance(batch, Mapping):
        found = _from_mapping(model, batch, wants=wants is not False and loss_fn is not None)
    elif isinstance(batch, (tuple, list)):
        found = _from_sequence(model, tuple(batch), wants)
    elif wants is True:
        raise UsageError(
            f"the loss needs targets, and the batch is a single {type(batch).__name__}: "
            "pass (inputs, targets)"
        )
    else:
        found = Batch(args=(batch,), kwargs={})
    return Batch(
        args=found.args,
        kwargs=found.kwargs,
        targets=found.targets,
        has_targets=found.has_targets,
        samples=_size(found),
    )


def _wants_targets(loss_fn: LossFunction | None) -> bool | None:
    """Whether a loss takes a second argument; ``None`` when it may or may not."""
    if loss_fn is None:
        return False
    called = loss_fn.forward if isinstance(loss_fn, Module) else loss_fn
    if isinstance(called, FunctionType) and not vars(called):
        return _wants_second(called)
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return True  # a builtin: losses usually take two
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [p for p in parameters if p.kind in kinds]
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return None if len(places) < 2 else True
    if len(places) < 2:
        return False
    return True if places[1].default is inspect.Parameter.empty else None


def _wants_second(function: FunctionType) -> bool | None:
    """The same for a plain function, whose code tells it at once."""
    places, defaults = function.__code__.co_argcount, len(function.__defaults__ or ())
    if function.__code__.co_flags & inspect.CO_VARARGS:
        return None if places < 2 else True
    if places < 2:
        return False
    return True if places - defaults >= 2 else None


def _from_sequence(model: Module, parts: tuple[object, ...], wants: bool | None) -> Batch:
    if wants is None:
        wants = len(parts) > 1 and not _required(model) >= len(parts)
    if not wants:
        return Batch(args=parts, kwargs={})
    if len(parts) < 2:
        raise UsageError(
            "the loss needs targets, and the batch has one part: pass (inputs, targets)"
        )
    inputs, targets = parts[:-1], parts[-1]
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        named = {str(name): value for name, value in inputs[0].items()}
        return Batch(kwargs=named, targets=targets, has_targets=True)
    if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
        inputs = tuple(inputs[0])
    return Batch(args=inputs, kwargs={}, targets=targets, has_targets=True)


def _from_mapping(model: Module, batch: Mapping[object, object], *, wants: bool) -> Batch:
    named = {str(name): value for name, value in batch.items()}
    if not wants:
        return Batch(kwargs=named)
    accepted = inspect.signature(model.forward).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
    key = next((name for name in _TARGETS if name in named and name not in accepted), None)
    if key is None:
        inputs = named if free else {k: v for k, v in named.items() if k in accepted}
        return Batch(kwargs=inputs, targets=batch, has_targets=True)
    inputs = {name: value for name, value in named.items() if name != key}
    return Batch(kwargs=inputs, targets=named[key], has_targets=True)


def _required(model: Module) -> int:
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


def _size(batch: Batch) -> int:
    for source in (batch.targets, batch.args, batch.kwargs):
        for tensor in outputs_in(source):
            if tensor.dim():
                return tensor.shape[0]
    raise UsageError("there is no tensor with an axis of samples in the batch")


def _take(value: object, chosen: Tensor, samples: int) -> object:
    if isinstance(value, Tensor):
        axis = next((a for a, size in enumerate(value.shape) if size == samples), None)
        return value if axis is None else value.index_select(axis, chosen.to(value.device))
    if isinstance(value, Mapping):
        return {name: _take(part, chosen, samples) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_take(part, chosen, samples) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value
