"""Which column counts the rows of a log: steps, epochs, batches within epochs, or the order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .naming import Quantity, name_of

__all__ = ["Axis", "choose_axis"]

_FIRST_TIMESTAMP = 1e9  # 2001 in Unix seconds; no run has that many steps
_MIN_SHARE = 0.5
_MAX_BACKWARD_SHARE = 0.2

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Columns that place a row in its run.

    Attributes:
        step: column whose value is the step, or ``None``: rows are numbered.
        epoch: column of epochs, beside ``step``; tells a new epoch from a new run.
        time: column of seconds.
        descending: the rows are sorted from the last step to the first.
        inner: the count starts anew in every epoch.
    """

    step: str | None = None
    epoch: str | None = None
    time: str | None = None
    descending: bool = False
    inner: bool = False


def choose_axis(columns: Mapping[str, Values], forced: str | None = None) -> Axis:
    """Choose from the first rows of a log.

    A column serves as step if most rows have it, its values are whole, and they rise, but for
    restarts. Timestamps and constants do not serve.

    Args:
        columns: name to values of the first rows.
        forced: column that the person wants as step.
    """
    found = {name: name_of(name) for name in columns}
    epoch = _first(columns, [n for n, c in found.items() if c.quantity is Quantity.EPOCH])
    time = _first(columns, [n for n, c in found.items() if c.quantity is Quantity.TIME])
    if forced is not None:
        return Axis(step=forced, epoch=epoch if epoch != forced else None, time=time)
    steps = [name for name, c in found.items() if c.quantity is Quantity.STEP]
    steps.sort(key=lambda name: found[name].rank)
    inner = [name for name, c in found.items() if c.quantity is Quantity.INNER]
    epochs = columns.get(epoch or "")
    for name in [*steps, *inner, *([epoch] if epoch else [])]:
        values = columns[name]
        beside = None if name == epoch else epochs
        if _descends(values):
            return Axis(step=name, time=time, descending=True)
        if _counts(values, beside):
            anew = beside is not None and _starts_anew(values, beside)
            return Axis(step=name, epoch=epoch if name != epoch else None, time=time, inner=anew)
    return Axis(epoch=epoch, time=time)


def _first(columns: Mapping[str, Values], names: list[str]) -> str | None:
    return next((name for name in names if any(v is not None for v in columns[name])), None)


def _counts(values: Values, epochs: Values | None) -> bool:
    known = [value for value in values if value is not None]
    if not known or len(known) < _MIN_SHARE * len(values):
        return False
    if not all(math.isfinite(value) and value == int(value) for value in known):
        return False
    if known[0] >= _FIRST_TIMESTAMP:
        return False
    if len(known) == 1:
        return True
    if len(set(known)) == 1:
        return False  # e.g. the last batch of each epoch
    backward, still = _backward(values, epochs)
    return backward <= _MAX_BACKWARD_SHARE * len(known) + 1 and still < 0.7 * len(known)


def _backward(values: Values, epochs: Values | None) -> tuple[int, int]:
    """Return how often the count falls without a new epoch, and how often it stands still."""
    rows = list(zip(values, epochs or values, strict=True))
    pairs = list(pairwise(row for row in rows if row[0] is not None))
    backward = sum(
        1
        for (before, epoch_before), (after, epoch_after) in pairs
        if (after or 0) < (before or 0)
        and not (epochs is not None and (epoch_after or 0) > (epoch_before or 0))
    )
    return backward, sum(1 for (before, _), (after, _) in pairs if before == after)


def _starts_anew(values: Values, epochs: Values) -> bool:
    """Whether the count falls where a new epoch begins."""
    rows = [row for row in zip(values, epochs, strict=True) if None not in row]
    return any(
        (after or 0) < (before or 0) and (epoch_after or 0) > (epoch_before or 0)
        for (before, epoch_before), (after, epoch_after) in pairwise(rows)
    )


def _descends(values: Values) -> bool:
    known = [value for value in values if value is not None]
    return len(known) >= 5 and all(after < before for before, after in pairwise(known))
