"""What small runs have shown of a model is remembered as long as the model lives."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakKeyDictionary

from torch.nn import Module

from ..batches import Batch, LossFunction
from .forward_pass import Subject
from .small_run import SmallRun

__all__ = ["Lesson", "recall", "remember"]

Lesson = tuple[SmallRun, dict[str, str]]
"""A small run without its tensors, and the parameters whose rules failed in it."""

_LESSONS: WeakKeyDictionary[Module, dict[Hashable, Lesson]] = WeakKeyDictionary()
_MOST = 8


def recall(subject: Subject, batch: Batch, loss_fn: LossFunction | None) -> Lesson | None:
    """Return what is known of this model, in these modes, with a batch of these shapes."""
    return _LESSONS.get(subject.model, {}).get(_key(subject, batch, loss_fn))


def remember(subject: Subject, batch: Batch, loss_fn: LossFunction | None, lesson: Lesson) -> None:
    """Keep a lesson; the oldest makes room."""
    known = _LESSONS.setdefault(subject.model, {})
    if len(known) >= _MOST:
        known.pop(next(iter(known)))
    known[_key(subject, batch, loss_fn)] = lesson


def _key(subject: Subject, batch: Batch, loss_fn: LossFunction | None) -> Hashable:
    code = getattr(loss_fn, "__code__", None)
    return (
        tuple((tuple(tensor.shape), tensor.dtype) for tensor in batch.tensors()),
        tuple(module.training for module in subject.model.modules()),
        tuple((name, parameter.dtype) for name, parameter in subject.parameters.items()),
        code if code is not None else (type(loss_fn), id(loss_fn)),
    )
