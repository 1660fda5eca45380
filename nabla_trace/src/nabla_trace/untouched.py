"""Leaves a model as it was: buffers, modes, hooks on parameters, random generators."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Embedding, EmbeddingBag, Module
from torch.nn.modules.batchnorm import _BatchNorm

from .ghost.rng import RngState, kept_rng, restore_rng

__all__ = [
    "NamedModules",
    "Start",
    "batch_statistics_frozen",
    "couples_samples",
    "draws_noise",
    "untouched",
    "written_by_forward",
]

NamedModules = Sequence[tuple[str, Module]]
"""All modules of a model with their paths: walking through it is done once."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a run of a model begins with, and may change.

    Attributes:
        rng: state of the random generators.
        buffers: module, name and value of each buffer.
    """

    rng: RngState
    buffers: Sequence[tuple[Module, str, Tensor]]

    def again(self) -> None:
        """Let the next run begin as the first did: a statistic that the first has updated, or a
        vector that it has iterated on, would give the second other gradients."""
        restore_rng(self.rng)
        for module, name, value in self.buffers:
            module._buffers[name] = value.clone()


@contextmanager
def untouched(modules: NamedModules) -> Iterator[Start]:
    """Let the block run a model; afterwards nothing of it differs.

    Buffers are replaced by copies inside the block, so that a graph that the user holds keeps
    seeing the tensors that it saved. Hooks on parameters are suspended: what they do to a gradient
    would be done to the gradient of the whole batch and not to those of the samples.

    Args:
        modules: all of the model.

    Yields:
        What the block begins with.
    """
    buffers = [
        (module, name, value)
        for _, module in modules
        for name, value in module._buffers.items()
        if value is not None
    ]
    modes = [(module, module.training) for _, module in modules]
    weights = [(weight, weight.detach().clone()) for weight in written_by_forward(modules)]
    for module, name, value in buffers:
        module._buffers[name] = value.clone()
    try:
        with (
            kept_rng() as state,
            _no_parameter_hooks(modules),
            _uncompiled(),
            torch.enable_grad(),
        ):
            yield Start(state, buffers)
    finally:
        for module, name, value in buffers:
            module._buffers[name] = value
        for module, training in modes:
            if module.training is not training:  # setting an attribute of a module is dear
                module.training = training
        for weight, value in weights:
            weight.data.copy_(value)


def _uncompiled() -> AbstractContextManager[object]:
    """Let compiled modules run as they are written: what two samples compile would stay compiled
    for the person's own calls, with shapes that vary."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def _no_parameter_hooks(modules: NamedModules) -> Iterator[None]:
    kept = []
    for _, module in modules:
        for parameter in module._parameters.values():
            hooks = None if parameter is None else parameter._backward_hooks
            if hooks:
                kept.append((hooks, list(hooks.items())))
                hooks.clear()
    try:
        yield
    finally:
        for hooks, entries in kept:
            hooks.update(entries)


def written_by_forward(modules: NamedModules) -> list[Tensor]:
    """Return the weights that a forward pass scales in place, as a table with ``max_norm`` does."""
    return [
        module.weight
        for _, module in modules
        if isinstance(module, (Embedding, EmbeddingBag)) and module.max_norm is not None
    ]


def couples_samples(modules: NamedModules) -> list[str]:
    """Return the names of modules that normalise over the batch as they are now."""
    return [
        name
        for name, module in modules
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    ]


def draws_noise(modules: NamedModules) -> list[str]:
    """Return the names of modules that draw random numbers as they are now."""
    return [name for name, module in modules if module.training and _rate(module) > 0]


def _rate(module: Module) -> float:
    kind = type(module).__name__.lower()
    if "drop" not in kind and not isinstance(
        module, (torch.nn.MultiheadAttention, torch.nn.RNNBase)
    ):
        return 0.0
    rates = (getattr(module, name, 0.0) for name in ("p", "dropout", "drop_prob"))
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
