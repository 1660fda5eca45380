"""Which optimizer holds which parameters: several are told apart by that."""

from __future__ import annotations

from .parts import Parts

__all__ = ["FOUND", "OWNERS", "owned_names"]

FOUND = "found"
"""Key of the run's policy: names of extra state that nobody gave, and that may be irrelevant."""

OWNERS = "optimizers"
"""Key of the run's policy: for each of several optimizers the names of its parameters."""


def owned_names(parts: Parts) -> list[list[str]]:
    """Return the names of the parameters of each optimizer, as far as the model has them."""
    names = {id(parameter): name for name, parameter in parts.model.named_parameters()}
    return [
        [
            names[id(parameter)]
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in names
        ]
        for optimizer in parts.optimizers
    ]
