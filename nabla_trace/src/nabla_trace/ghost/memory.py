"""What small runs have shown of a model is remembered as long as the model lives."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakKeyDictionary

from torch.nn import Module

from ..batches import Batch, LossFunction
from ..untouched import NamedModules
from .forward_pass import Subject
from .loss_likeness import loss_likeness
from .small_run import SmallRun

__all__ = ["Lesson", "lesson_key", "recall", "remember"]

Lesson = tuple[SmallRun, dict[str, str]]
"""A small run without its tensors, and the parameters whose rules failed in it."""

_LESSONS: WeakKeyDictionary[Module, dict[Hashable, Lesson]] = WeakKeyDictionary()
_MOST = 8


def recall(model: Module, key: Hashable) -> Lesson | None:
    """Return what is known of this model under a key."""
    return _LESSONS.get(model, {}).get(key)


def remember(model: Module, key: Hashable, lesson: Lesson) -> None:
    """Keep a lesson; the oldest makes room."""
    known = _LESSONS.setdefault(model, {})
    if len(known) >= _MOST:
        known.pop(next(iter(known)))
    known[key] = lesson


def lesson_key(
    subject: Subject, modules: NamedModules, batch: Batch, loss_fn: LossFunction | None
) -> Hashable:
    """Return what a lesson is for: shapes, modes, parameters and a loss."""
    return (
        tuple([(tensor.shape, tensor.dtype) for tensor in batch.tensors()]),
        tuple([module.training for _, module in modules]),
        tuple([(name, parameter.dtype) for name, parameter in subject.parameters.items()]),
        loss_likeness(loss_fn),
    )
