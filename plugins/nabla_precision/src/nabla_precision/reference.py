"""The reference: one forward and backward pass in float64, with every call of a module recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Module

from nabla_core.errors import InputError, UsageError

from .alone import Cast, call_with
from .calls import Frame, Recorder, replaced_call
from .restoring import device_states, set_device_states
from .tree import dense, mapped, tensors_in

__all__ = ["Batch", "LossFunction", "Reference", "read_batch", "run_reference"]

LossFunction = Callable[..., Tensor]
_SEED = 20_11


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the model is called with, and what its output is compared with.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        target: further arguments of the loss.
    """

    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    target: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The reference pass.

    Attributes:
        frames: every call of a module, each before the calls that it made.
        dtype: dtype of the pass.
        has_loss: whether the gradients are those of a loss; else of random cotangents.
        has_gradients: whether there are any.
        parameter_grads: gradients of the parameters, by ``id``.
        start: states of the random generators at its beginning.
        notes: what had to be done otherwise.
    """

    frames: list[Frame]
    dtype: torch.dtype
    has_loss: bool
    has_gradients: bool
    parameter_grads: Mapping[int, Tensor]
    start: tuple[Tensor, ...]
    notes: tuple[str, ...] = ()


def read_batch(inputs: object, loss_fn: LossFunction | None) -> Batch:
    """Take apart what a person gave.

    Args:
        inputs: a tensor, positional arguments in a tuple or list, or keyword arguments in a dict.
            For a loss of output and target, the last element of the tuple is the target.
        loss_fn: the loss, if any.

    Raises:
        UsageError: the loss wants a target and there is none.
    """
    if isinstance(inputs, Mapping):
        return Batch(kwargs={str(name): value for name, value in inputs.items()})
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if loss_fn is None or _required_arguments(loss_fn) < 2:
        return Batch(args=given)
    if len(given) < 2:
        raise UsageError(
            "audit(loss_fn=...): this loss takes an output and a target; give the target as the "
            "last element of inputs, or a loss of the output alone"
        )
    first, target = given[:-1], given[-1]
    if len(first) == 1 and isinstance(first[0], Mapping):
        return Batch(kwargs={str(k): v for k, v in first[0].items()}, target=(target,))
    return Batch(args=first, target=(target,))


def run_reference(model: Module, batch: Batch, loss_fn: LossFunction | None) -> Reference:
    """Run the reference pass, in float64 where the model can.

    Raises:
        InputError: the model raises in float64 and in float32 alike.
    """
    start = device_states()
    try:
        return _recorded(model, batch, loss_fn, torch.float64)
    except UsageError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    set_device_states(start)
    try:
        found = _recorded(model, batch, loss_fn, torch.float32)
    except UsageError:
        raise
    except Exception as error:
        raise InputError(
            f"audit: {type(model).__name__} raised {type(error).__name__} on these inputs: {error}"
        ) from error
    note = f"the model cannot run in float64 ({reason}); the reference is float32"
    return Reference(
        frames=found.frames,
        dtype=found.dtype,
        has_loss=found.has_loss,
        has_gradients=found.has_gradients,
        parameter_grads=found.parameter_grads,
        start=start,
        notes=(note, *found.notes),
    )


def _recorded(
    model: Module, batch: Batch, loss_fn: LossFunction | None, dtype: torch.dtype
) -> Reference:
    start = device_states()
    copies = any(getattr(module, "inplace", False) for module in model.modules())
    recorder = Recorder(model, copies=copies)
    found = _pass(model, batch, loss_fn, dtype, recorder)
    if recorder.was_overwritten and not copies:
        set_device_states(start)
        recorder = Recorder(model, copies=True)
        found = _pass(model, batch, loss_fn, dtype, recorder)
    grads, has_loss, notes = found
    return Reference(
        frames=recorder.frames,
        dtype=dtype,
        has_loss=has_loss,
        has_gradients=bool(grads),
        parameter_grads=grads,
        start=start,
        notes=notes,
    )


def _pass(
    model: Module,
    batch: Batch,
    loss_fn: LossFunction | None,
    dtype: torch.dtype,
    recorder: Recorder,
) -> tuple[dict[int, Tensor], bool, tuple[str, ...]]:
    """Run forward and backward; return gradients, whether there is a loss, and notes."""
    cast = Cast(dtype)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.enable_grad():
            args = mapped(batch.args, cast)
            kwargs = mapped(dict(batch.kwargs), cast)
            with replaced_call(recorder.call):
                output = call_with(model, cast.state(model), args, kwargs)
            loss = _loss(output, batch, loss_fn, cast)
            has_loss = loss is not None
            total = _projected(output) if loss is None else loss
            trained = [p for p in model.parameters() if p.requires_grad]
            leaves = [cast.parameter(parameter) for parameter in trained]
            if total is None or not total.requires_grad or not leaves:
                return {}, has_loss, ("nothing of the output depends on a parameter",)
            grads = torch.autograd.grad(total, leaves, allow_unused=True)
    finally:
        torch.set_default_dtype(usual)
    notes = () if has_loss else ("no loss was given: gradients are those of random directions",)
    known = {id(p): dense(g) for p, g in zip(trained, grads, strict=True) if g is not None}
    return known, has_loss, notes


def _loss(output: object, batch: Batch, loss_fn: LossFunction | None, cast: Cast) -> Tensor | None:
    if loss_fn is None:
        own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if own is None and isinstance(output, Tensor) and output.numel() == 1:
            own = output
        return own.reshape(()) if isinstance(own, Tensor) and own.numel() == 1 else None
    target = mapped(batch.target, cast)
    try:
        value = loss_fn(output, *target)
    except RuntimeError:  # a loss with weights of its own, which are float32
        value = loss_fn(mapped(output, lambda t: t.float()), *mapped(target, lambda t: t.float()))
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UsageError(f"audit(loss_fn=...): the loss must be one number, not {shape}")
    return value.reshape(())


def _projected(output: object) -> Tensor | None:
    """Return the outputs along one random direction of unit length."""
    parts = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    generator = torch.Generator().manual_seed(_SEED)
    total = None
    for part in parts:
        signs = torch.randint(0, 2, tuple(part.shape), generator=generator)
        along = (part * (2 * signs - 1).to(part)).sum() / max(1, part.numel()) ** 0.5
        total = along if total is None else total + along
    return total


def _required_arguments(function: LossFunction) -> int:
    target = function.forward if isinstance(function, Module) else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
