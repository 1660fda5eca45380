"""Sets rates and other settings of optimizers as they were recorded, where a loop set them between
its steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..capturing.parts import Parts
from ..capturing.rates import groups_of, rate_name, setting_names
from ..store.entries import StepEntry
from .habits import Habits
from .history import Segment

__all__ = [
    "after_look",
    "before_batches",
    "before_look",
    "before_step",
    "put_rates",
    "step_schedules",
]


def before_batches(habits: Habits, parts: Parts, segment: Segment, index: int) -> None:
    """Do what the recorded loop did to its schedules before it took the batches of a step."""
    if habits.rates == "schedule later" and index > 0 and not segment.within:
        step_schedules(parts)  # checkpoints were taken before it did


def before_step(habits: Habits, parts: Parts, segment: Segment, index: int) -> None:
    """Do what the recorded loop did to its rates when it had the batches of a step."""
    if habits.rates == "before" and 0 <= index < len(segment.steps):
        put_rates(parts, segment.steps[index].signals)


def before_look(habits: Habits, parts: Parts, recorded: StepEntry) -> None:
    """Do what the recorded loop did between a step and the record of it."""
    if habits.rates == "after":
        put_rates(parts, recorded.signals)
    elif habits.rates == "schedule":
        step_schedules(parts)


def after_look(habits: Habits, parts: Parts, segment: Segment) -> None:
    """Do what the recorded loop did after the record of a step."""
    if habits.rates == "schedule later" and segment.within:
        step_schedules(parts)


def put_rates(parts: Parts, signals: Mapping[str, float]) -> None:
    """Set the rates and settings of a record; a group that has no rate of its own has that of the
    first one."""
    first = signals.get(rate_name(0))
    for index, group in enumerate(groups_of(parts.optimizers)):
        _put_settings(group, index, signals)
        if first is None:
            continue
        rate, now = signals.get(rate_name(index), first), group.get("lr")
        if isinstance(now, Tensor):
            with torch.no_grad():
                now.fill_(rate)
        elif type(now) is not int or now != rate:
            group["lr"] = rate


def _put_settings(group: dict[str, object], index: int, signals: Mapping[str, float]) -> None:
    for key, now in tuple(group.items()):
        names = setting_names(index, key, now)
        if not any(name in signals for name in names):
            continue
        known = now if isinstance(now, tuple) else (now,)
        put = tuple(
            _as_it_was(signals[name], one) if name in signals else one
            for name, one in zip(names, known, strict=True)
        )
        group[key] = put if isinstance(now, tuple) else put[0]


def _as_it_was(number: float, now: object) -> float | int:
    """Return a recorded number as the kind that the program has there, where that holds it."""
    return int(number) if type(now) is int and number.is_integer() else number


def step_schedules(parts: Parts) -> None:
    """Let every schedule take a step, as a loop does after each of its own."""
    for scheduler in parts.schedulers:
        step = getattr(scheduler, "step", None)
        if callable(step):
            step()
