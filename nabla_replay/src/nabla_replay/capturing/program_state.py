"""The full state of a program as one tree, and its way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from nabla_guard.origin.naming import paths_of

from ..errors import RecordError
from .frozen import frozen_names, put_frozen
from .generators import generator_state, restore_generators
from .parts import Parts
from .stateful import put_state, state_of

__all__ = [
    "StateTree",
    "full_state",
    "missing_parts",
    "plain_state",
    "restore_generators_of",
    "restore_parts",
]

StateTree = Mapping[str, object]
"""Component to state: ``model``, ``hidden`` (buffers that a state dict leaves out), ``gradients``
(those that no optimizer clears), ``optimizer`` and ``scheduler`` (lists), ``scaler``, ``extra``,
``generators``, ``loader``, ``frozen`` (names of parameters that are not trained)."""


def full_state(
    parts: Parts,
    loader: Mapping[str, object] | None,
    generators: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the state of every part; tensors in it are the live ones, nothing is copied.

    Args:
        parts: the program.
        loader: where the data is, from :class:`.loaders.LoaderBook`.
        generators: where they have been; by default where they are.
    """
    modules = [module for _, module in paths_of(parts.model)]
    state: dict[str, object] = {
        "model": _model_state(parts.model),
        "hidden": dict(_hidden_buffers(parts.model, modules)),
        "gradients": dict(_carried_gradients(parts, modules)),
        "optimizer": [one.state_dict() for one in parts.optimizers],
        "scheduler": [plain_state(one.state_dict()) for one in parts.schedulers],
        "scaler": None if parts.scaler is None else parts.scaler.state_dict(),
        "extra": {name: state_of(value) for name, value in parts.extra.items()},
        "generators": generator_state() if generators is None else generators,
        "loader": loader,
        "frozen": frozen_names(parts.model, modules),
    }
    return state


def restore_parts(parts: Parts, state: StateTree) -> None:
    """Put a recorded state into the parts that are there; generators and loader stay as they are.

    Raises:
        RecordError: a part does not take the state: another architecture or kind of optimizer.
    """
    model = cast("Mapping[str, object]", state["model"])
    _put("model", lambda: _load(parts.model, model))
    buffers = dict(parts.model.named_buffers())
    for name, value in cast("Mapping[str, Tensor]", state["hidden"]).items():
        if name in buffers:
            _put(f"buffer {name}", lambda: buffers[name].copy_(value))  # noqa: B023 - called at once
    put_frozen(parts.model, state.get("frozen"))
    _put_all("optimizer", parts.optimizers, cast("list[object]", state["optimizer"]))
    _put_all("scheduler", parts.schedulers, cast("list[object]", state["scheduler"]))
    if parts.scaler is not None and state["scaler"] is not None:
        _put_all("scaler", (parts.scaler,), [state["scaler"]])
    extra = cast("Mapping[str, object]", state["extra"])
    for name, one in parts.extra.items():
        if name in extra:
            _put_all(f"extra {name}", (one,), [extra[name]])
    carried = cast("Mapping[str, Tensor]", state.get("gradients", {}))
    for name, parameter in parts.model.named_parameters():
        parameter.grad = None if name not in carried else carried[name].to(parameter.device)


def restore_generators_of(state: StateTree) -> None:
    """Undo the global generators to what they were at the checkpoint."""
    restore_generators(cast("Mapping[str, object]", state["generators"]))


def missing_parts(parts: Parts, state: StateTree) -> tuple[str, ...]:
    """Return the components that were recorded and that the program to replay does not have."""
    recorded = {
        "optimizer": len(cast("list[object]", state["optimizer"])) > len(parts.optimizers),
        "scheduler": len(cast("list[object]", state["scheduler"])) > len(parts.schedulers),
        "scaler": state["scaler"] is not None and parts.scaler is None,
    }
    lost = [name for name, gone in recorded.items() if gone]
    extra = cast("Mapping[str, object]", state["extra"])
    lost += [f"extra {name}" for name in extra if name not in parts.extra]
    if state["loader"] is not None and parts.loader is None:
        lost.append("loader")
    return tuple(lost)


def _model_state(model: Module) -> dict[str, object]:
    """Return the state dict without tensors of lazy modules that have not been made yet."""
    state = model.state_dict()
    for name in [name for name, value in state.items() if type(value) is not Tensor]:
        if is_lazy(state[name]):
            del state[name]
    return state


def _load(model: Module, state: Mapping[str, object]) -> None:
    """Put a state into a model; what was still to be made then is made by the program again."""
    named = (*model.named_parameters(), *model.named_buffers())
    lazy = {name for name, tensor in named if is_lazy(tensor)} - state.keys()
    if not lazy:
        model.load_state_dict(state)
        return
    found = model.load_state_dict(state, strict=False)
    wrong = [*found.unexpected_keys, *(name for name in found.missing_keys if name not in lazy)]
    if wrong:
        raise ValueError(f"{wrong[0]} is on one side only")


def _carried_gradients(parts: Parts, modules: Iterable[Module]) -> Iterator[tuple[str, Tensor]]:
    """Gradients of parameters that no optimizer holds: none clears them, and so they add up."""
    held = {
        id(parameter)
        for optimizer in parts.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    if not held or all(
        parameter is None or id(parameter) in held or parameter.grad is None
        for module in modules
        for parameter in module._parameters.values()
    ):
        return  # looking for names takes longer
    for name, parameter in parts.model.named_parameters():
        if id(parameter) not in held and parameter.grad is not None:
            yield name, parameter.grad


def _hidden_buffers(model: Module, modules: Iterable[Module]) -> Iterator[tuple[str, Tensor]]:
    """Buffers that a state dict leaves out decide the next step all the same."""
    if not any(module._non_persistent_buffers_set for module in modules):
        return  # looking for names takes longer
    for path, module in model.named_modules():
        for key in module._non_persistent_buffers_set:
            buffer = module._buffers.get(key)
            if buffer is not None:
                yield f"{path}.{key}" if path else key, buffer


def plain_state(state: Mapping[str, object]) -> dict[str, object]:
    """Leave out functions: a schedule given as code is not state, and is not restored by torch."""
    return {name: value for name, value in state.items() if not callable(value)}


def _put_all(what: str, objects: tuple[object, ...], states: list[object]) -> None:
    for one, state in zip(objects, states, strict=False):
        _put(what, lambda: put_state(one, state))  # noqa: B023 - called at once


def _put(what: str, put: object) -> None:
    try:
        with torch.no_grad():
            put()  # type: ignore[operator]
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"the recorded state of the {what} does not fit the program to replay: {error}"
        ) from error
