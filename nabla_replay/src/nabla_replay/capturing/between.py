"""What a program changes between two epochs, beside the data: schedules, and rates set by hand.

A replay executes steps. What a program does between two epochs (an evaluation, a schedule that
follows the epochs) is not executed again; its outcome is recorded where the next epoch begins, and
put back there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from ..codec.inline import pack
from ..errors import RecordError, ReplayError
from .frozen import frozen_names, put_frozen
from .parts import Parts
from .program_state import plain_state
from .stateful import put_state

__all__ = ["ProgramChanged", "between_state", "put_between_state"]


class ProgramChanged(RecordError):
    """The recorded program had become another one, which cannot be put back."""


_PLAIN = (str, int, float, bool, type(None))


def between_state(parts: Parts) -> dict[str, object]:
    """Return schedules and hyperparameters as they are now; nothing if they have no safe form."""
    state: dict[str, object] = {
        "schedulers": [plain_state(one.state_dict()) for one in parts.schedulers],
        "groups": [
            [_settings(group) for group in optimizer.param_groups] for optimizer in parts.optimizers
        ],
        "frozen": frozen_names(parts.model),
    }
    try:
        pack(state)
    except ReplayError:
        return {}
    return state


def put_between_state(parts: Parts, state: Mapping[str, object]) -> None:
    """Put back what :func:`between_state` returned, as far as the program has these parts.

    Raises:
        ProgramChanged: the program had added or removed groups of parameters.
    """
    put_frozen(parts.model, state.get("frozen"))
    groups = cast("list[list[Mapping[str, object]]]", state.get("groups", []))
    for optimizer, kept in zip(parts.optimizers, groups, strict=False):
        if len(kept) != len(optimizer.param_groups):
            raise ProgramChanged(
                "between two epochs the recorded program changed the number of its optimizer's "
                f"parameter groups to {len(kept)}, and the replayed one has "
                f"{len(optimizer.param_groups)}: let step() add or remove them at that step"
            )
    for optimizer, kept in zip(parts.optimizers, groups, strict=False):
        for group, settings in zip(optimizer.param_groups, kept, strict=False):
            _put(group, settings)
    schedulers = cast("list[object]", state.get("schedulers", []))
    for scheduler, one in zip(parts.schedulers, schedulers, strict=False):
        put_state(scheduler, one)


def _settings(group: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value
        for name, value in group.items()
        if name != "params" and (isinstance(value, _PLAIN) or _is_number(value) or _is_pair(value))
    }


def _put(group: dict[str, object], settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        now = group.get(name)
        if isinstance(now, Tensor) and isinstance(value, Tensor):
            with torch.no_grad():
                now.copy_(value)
        elif name in group:
            group[name] = value


def _is_number(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _is_pair(value: object) -> bool:
    return type(value) is tuple and all(isinstance(one, _PLAIN) for one in value)
