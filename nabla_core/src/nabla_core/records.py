"""Facts of a training run: one record per optimizer step, and rare events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .issue import Location

__all__ = ["Event", "StepRecord"]


class StepRecord(NamedTuple):
    """The facts of one optimizer step. What was not measured is absent, never NaN.

    The same record comes from a live loop, a framework callback, a log file or a captured run. Give
    the fields by name. It is a tuple because there is one per step of a loop and one per row of a
    log: a frozen dataclass takes three times as long to make.

    Attributes:
        step: 0-based optimizer step of the session.
        time_s: seconds since the session started, monotonic.
        signals: scalar facts, e.g. ``loss``, ``lr``, ``grad_norm`` (global L2 norm of the
            gradients that the optimizer was given).
        layers: per-layer facts; each sequence is aligned with ``layout``.
        layout: names of the layers or parameters, in a fixed order.
    """

    step: int
    time_s: float
    signals: Mapping[str, float] = MappingProxyType({})
    layers: Mapping[str, Sequence[float]] = MappingProxyType({})
    layout: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something rare: a call out of order, an exception, a resume.

    Attributes:
        kind: what happened, e.g. ``"exception"``, ``"resume"``, ``"skipped-step"``.
        step: 0-based optimizer step of the session.
        time_s: seconds since the session started, monotonic.
        name: what it happened to.
        values: numbers that belong to it.
        where: place in the model or source.
    """

    kind: str
    step: int
    time_s: float
    name: str = ""
    values: tuple[float, ...] = ()
    where: Location | None = None
