"""The parts of a checkpoint: an optimizer's moments, a schedule, a loss scale."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..taps.optimizers import parameters_of

__all__ = ["PartFacts", "compare_part", "parts_of"]


@dataclass(slots=True, kw_only=True, eq=False)
class PartFacts:
    """A part of a checkpoint that ``torch.load`` returned.

    Attributes:
        key: its key in the file.
        kind: what it looks like.
        restored: whether something of its kind was given a state dict since.
        remade: an optimizer state: whether the optimizer that was given one was made anew before
            its first step.
        fits: an optimizer state: whether the optimizer that steps has as many parameters of the
            same shapes, the same settings and the same learning rate; ``None`` while unknown.
        position: a scheduler state: its ``last_epoch``.
        scale: a scaler state: its loss scale.
        behind: a scheduler state: a living scheduler of the same class has a lower ``last_epoch``;
            a scaler state: a living scaler has another scale.
        shapes: shapes of an optimizer's moments, by index of the parameter.
        settings: names of the optimizer's settings.
        rates: learning rates of its groups before any schedule.
    """

    key: str
    kind: str
    restored: bool = False
    remade: bool = False
    fits: bool | None = None
    position: int = 0
    scale: float = 0.0
    behind: bool = False
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    settings: frozenset[str] = frozenset()
    rates: tuple[float, ...] = ()


def parts_of(content: Mapping[object, object]) -> Iterator[PartFacts]:
    """Recognise the parts of a checkpoint by what they hold."""
    for key, value in content.items():
        if isinstance(value, Mapping) and {"state", "param_groups"} <= set(value):
            part = _optimizer_part(str(key), value)
            if part is not None:
                yield part
        elif isinstance(value, Mapping) and {"last_epoch", "_step_count"} <= set(value):
            position = value["last_epoch"]
            if isinstance(position, int) and position > 0:
                yield PartFacts(key=str(key), kind="scheduler", position=position)
        elif isinstance(value, Mapping) and {"scale", "growth_factor"} <= set(value):
            yield PartFacts(key=str(key), kind="scaler", scale=float(value["scale"]))


def _optimizer_part(key: str, value: Mapping[object, object]) -> PartFacts | None:
    """Describe the state of an optimizer; ``None`` when it keeps nothing between steps."""
    state, groups = value["state"], value["param_groups"]
    if not isinstance(state, Mapping) or not isinstance(groups, list):
        return None
    shapes = {
        index: shape
        for index, kept in state.items()
        if isinstance(index, int) and isinstance(kept, Mapping)
        for shape in [_moment_shape(kept)]
        if shape is not None
    }
    if not shapes:
        return None
    return PartFacts(
        key=key,
        kind="optimizer",
        shapes=shapes,
        settings=frozenset(str(name) for group in groups for name in group) - {"initial_lr"},
        rates=tuple(_rate(group) for group in groups),
    )


def _moment_shape(kept: Mapping[object, object]) -> tuple[int, ...] | None:
    sized = [value for value in kept.values() if isinstance(value, Tensor) and value.dim()]
    return tuple(sized[0].shape) if sized else None


def _rate(group: Mapping[str, object]) -> float:
    rate = group.get("initial_lr", group.get("lr"))
    return float(rate) if isinstance(rate, (int, float, Tensor)) else 0.0


def compare_part(part: PartFacts, optimizer: Optimizer) -> None:
    """Tell a resume from a fine-tuning that takes the weights only."""
    if part.kind == "scheduler":
        part.behind = _is_behind(part, optimizer)
    if part.kind == "scaler" and not part.restored:
        part.behind = _starts_over(part)
    if part.kind != "optimizer" or (part.restored and not part.remade):
        return
    parameters = parameters_of(optimizer)
    groups = optimizer.param_groups
    part.fits = (
        all(
            index < len(parameters) and tuple(parameters[index].shape) == shape
            for index, shape in part.shapes.items()
        )
        and part.settings == frozenset(name for group in groups for name in group) - {"initial_lr"}
        and part.rates == tuple(_rate(group) for group in groups)
    )


def _is_behind(part: PartFacts, optimizer: Optimizer) -> bool:
    """Whether the optimizer's schedule is behind the saved one. Walks all objects."""
    positions = [
        found.last_epoch
        for found in gc.get_objects()
        if issubclass(type(found), LRScheduler) and getattr(found, "optimizer", None) is optimizer
    ]
    return bool(positions) and all(position < part.position for position in positions)


def _starts_over(part: PartFacts) -> bool:
    """Whether a scaler in use has another scale than the saved one. Walks all objects."""
    scalers = [found for found in gc.get_objects() if issubclass(type(found), torch.amp.GradScaler)]
    used = [found for found in scalers if found.is_enabled() and found._scale is not None]
    return any(found.get_scale() != part.scale for found in used)
