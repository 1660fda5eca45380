"""The learning rates of a program, noted in a record where they are others than before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor
from torch.optim import Optimizer

__all__ = ["RATE", "Rates", "groups_of", "rate_name", "with_earlier_rates"]

RATE = "lr"
_MOST = 16  # groups: a record is written for every step


def rate_name(index: int) -> str:
    """Return how a record calls the rate of a group: ``lr``, ``lr.1``, ..."""
    return f"{RATE}.{index}" if index else RATE


def groups_of(optimizers: Iterable[Optimizer]) -> list[dict[str, object]]:
    """Return the first groups of parameters, over all optimizers."""
    return [group for one in optimizers for group in one.param_groups][:_MOST]


class Rates:
    """Notes the rates where one of them has changed.

    Args:
        optimizers: of the program.
    """

    def __init__(self, optimizers: tuple[Optimizer, ...]) -> None:
        self._optimizers = optimizers
        self._known: list[float | None] = []
        self._only = optimizers[0] if len(optimizers) == 1 else None
        self._rate: object = None  # of one group, where it is a number that stays as it is

    def forget(self) -> None:
        """Take all rates for new ones."""
        self._known, self._rate = [], None

    def news(self) -> dict[str, float]:
        """Return all rates, those that are not the first one's by number; nothing if none is new,
        or if reading the first would stop a device."""
        if self._rate is not None and self._only is not None:
            groups = self._only.param_groups
            if len(groups) == 1 and groups[0].get(RATE) is self._rate:
                return {}
        rates = [_number(group.get(RATE)) for group in groups_of(self._optimizers)]
        if not rates or rates == self._known:
            return {}
        self._known = rates
        first = rates[0]
        self._rate = first if self._only is not None else None
        if first is None:
            return {}
        found = {RATE: first}
        for index, rate in enumerate(rates):
            if rate is not None and rate != first:
                found[rate_name(index)] = rate
        return found


def with_earlier_rates(
    signals: Mapping[str, float], before: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the signals of a record with the rates of the one before it, where none is new."""
    if RATE in signals:
        return signals
    kept = {name: rate for name, rate in before.items() if name.partition(".")[0] == RATE}
    return {**kept, **signals} if kept else signals


def _number(rate: object) -> float | None:
    if type(rate) is float:
        return rate
    if isinstance(rate, Tensor):
        return float(rate) if rate.is_cpu and rate.numel() == 1 else None
    return float(rate) if isinstance(rate, (int, float)) else None
