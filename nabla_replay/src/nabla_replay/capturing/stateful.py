"""State outside of the model: whatever can say its state and take it back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch

from nabla_core.errors import UsageError

__all__ = ["Stateful", "Value", "check_stateful", "put_state", "state_of"]


@runtime_checkable
class Stateful(Protocol):
    """Has a state in torch's spelling: optimizers, schedulers, scalers, modules, averages."""

    def state_dict(self) -> Mapping[str, object]:
        """Return the state."""

    def load_state_dict(self, state_dict: Mapping[str, object]) -> object:
        """Undo to a state."""


Value = Stateful | torch.Generator | np.random.Generator | random.Random | torch.Tensor
"""What ``extra`` may hold."""


def check_stateful(value: object, what: str) -> None:
    """Say at once what cannot be captured.

    Raises:
        UsageError: ``value`` has no state that can be read and put back.
    """
    if not isinstance(
        value, (Stateful, torch.Generator, np.random.Generator, random.Random, torch.Tensor)
    ):
        raise UsageError(
            f"{what} is a {type(value).__name__}: needs state_dict() and load_state_dict(), or a "
            "tensor, or a generator of torch, numpy or random"
        )


def state_of(value: object) -> object:
    """Return the state of one of :data:`Value`; tensors in it are the live ones."""
    match value:
        case torch.Tensor():
            return value.detach()
        case torch.Generator():
            return value.get_state()
        case np.random.Generator():
            return value.bit_generator.state
        case random.Random():
            version, words, gauss = value.getstate()
            return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
        case Stateful():
            return value.state_dict()
    raise UsageError(f"{type(value).__name__} has no state that can be read")


def put_state(value: object, state: object) -> None:
    """Undo ``value`` to a state of :func:`state_of`; errors are those of the object itself."""
    match value:
        case torch.Tensor():
            with torch.no_grad():
                value.copy_(cast("torch.Tensor", state))
        case torch.Generator():
            value.set_state(cast("torch.Tensor", state))
        case np.random.Generator():
            value.bit_generator.state = cast("Mapping[str, object]", state)
        case random.Random():
            known = cast("Mapping[str, object]", state)
            words = tuple(int(word) for word in cast("Iterable[int]", known["words"]))
            value.setstate((known["version"], words, known["gauss"]))
        case Stateful():
            value.load_state_dict(cast("Mapping[str, object]", state))
