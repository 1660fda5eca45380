"""Leaves a model as it was: buffers, modes, hooks on parameters, random generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from .ghost.rng import kept_rng

__all__ = ["batch_statistics_frozen", "couples_samples", "draws_noise", "untouched"]


@contextmanager
def untouched(model: Module) -> Iterator[None]:
    """Let the block run the model; afterwards nothing of it differs.

    Buffers are replaced by copies inside the block, so that a graph that the user holds keeps
    seeing the tensors that it saved. Hooks on parameters are suspended: what they do to a gradient
    would be done to the gradient of the whole batch and not to those of the samples.
    """
    buffers = [
        (module, name, value)
        for module in model.modules()
        for name, value in module._buffers.items()
        if value is not None
    ]
    modes = [(module, module.training) for module in model.modules()]
    for module, name, value in buffers:
        module._buffers[name] = value.clone()
    try:
        with kept_rng(), _no_parameter_hooks(model), torch.enable_grad():
            yield
    finally:
        for module, name, value in buffers:
            module._buffers[name] = value
        for module, training in modes:
            module.training = training


@contextmanager
def _no_parameter_hooks(model: Module) -> Iterator[None]:
    kept = []
    for parameter in model.parameters():
        hooks = getattr(parameter, "_backward_hooks", None)
        if hooks:
            kept.append((hooks, list(hooks.items())))
            hooks.clear()
    try:
        yield
    finally:
        for hooks, entries in kept:
            hooks.update(entries)


def couples_samples(model: Module) -> list[str]:
    """Return the names of modules that normalise over the batch as they are now."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    ]


def draws_noise(model: Module) -> list[str]:
    """Return the names of modules that draw random numbers as they are now."""
    return [name for name, module in model.named_modules() if module.training and _rate(module) > 0]


def _rate(module: Module) -> float:
    rates = (getattr(module, name, 0.0) for name in ("p", "dropout", "drop_prob"))
    kind = type(module).__name__.lower()
    if "drop" not in kind and not isinstance(
        module, (torch.nn.MultiheadAttention, torch.nn.RNNBase)
    ):
        return 0.0
    return max((float(rate) for rate in rates if isinstance(rate, (int, float))), default=0.0)


@contextmanager
def batch_statistics_frozen(model: Module) -> Iterator[None]:
    """Let layers that normalise over the batch use their running statistics inside the block."""
    changed = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
    ]
    for module in changed:
        module.training = False
    try:
        yield
    finally:
        for module in changed:
            module.training = True
