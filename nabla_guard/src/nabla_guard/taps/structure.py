"""The parts of a module as ``Module.modules`` gives them, without a generator for each of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import Module

__all__ = ["modules_of", "parameters_in"]


def modules_of(root: Module) -> list[Module]:
    """Return what ``root.modules()`` yields."""
    found: dict[int, Module] = {}
    waiting: list[Module | None] = [root]
    while waiting:
        module = waiting.pop()
        if module is not None and id(module) not in found:
            found[id(module)] = module
            if parts := module._modules:
                waiting += [*parts.values()][::-1]
    return [*found.values()]


def parameters_in(modules: Sequence[Module]) -> list[Tensor]:
    """Return the parameters that these modules hold themselves, each once."""
    found: dict[int, Tensor] = {}
    for module in modules:
        if own := module._parameters:
            found |= {id(one): one for one in own.values() if one is not None}
    return [*found.values()]
