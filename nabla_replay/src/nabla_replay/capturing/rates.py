"""The settings of a program's optimizers, noted in a record where they are others than before.

A loop may set a rate, a momentum or a weight decay by hand between two of its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor
from torch.optim import Optimizer

__all__ = ["RATE", "Rates", "groups_of", "rate_name", "setting_names", "with_earlier_rates"]

RATE = "lr"
_GROUP = "group"
_KEPT = (RATE, _GROUP)
_MOST = 16  # groups: a record is written for every step
_LEFT_OUT = frozenset((RATE, "params", "initial_lr"))
_NUMBERS = (float, int)


def rate_name(index: int) -> str:
    """Return how a record calls the rate of a group: ``lr``, ``lr.1``, ..."""
    return f"{RATE}.{index}" if index else RATE


def groups_of(optimizers: Iterable[Optimizer]) -> list[dict[str, object]]:
    """Return the first groups of parameters, over all optimizers."""
    return [group for one in optimizers for group in one.param_groups][:_MOST]


def setting_names(index: int, key: str, value: object) -> list[str]:
    """Return how a record calls a setting of a group that is a number or a tuple of numbers.

    ``group.0.momentum``, ``group.1.betas.0``; nothing for a rate, a switch or anything else.

    Args:
        index: of the group.
        key: of the setting.
        value: its value.
    """
    if key in _LEFT_OUT:
        return []
    if type(value) in _NUMBERS:
        return [f"{_GROUP}.{index}.{key}"]
    if type(value) is tuple and value and all(type(one) in _NUMBERS for one in value):
        return [f"{_GROUP}.{index}.{key}.{place}" for place in range(len(value))]
    return []


class Rates:
    """Notes the rates where one of them has changed, and the other settings that have.

    Args:
        optimizers: of the program.
    """

    def __init__(self, optimizers: tuple[Optimizer, ...]) -> None:
        self._optimizers = optimizers
        self._known: list[float | None] = []
        self._values: list[list[object]] = []  # of all groups, where no rate is a tensor
        self._settings = self._first = dict(_settings(groups_of(optimizers)))

    def forget(self) -> None:
        """Take all rates for new ones, and settings that are others than at first."""
        self._known, self._values, self._settings = [], [], self._first

    def news(self) -> dict[str, float]:
        """Return all rates, those that are not the first one's by number, and each other setting
        that has changed; no rates if none is new, or if reading the first would stop a device."""
        values = [[*group.values()] for one in self._optimizers for group in one.param_groups]
        if self._values and _are_same(values, self._values):
            return {}
        groups = groups_of(self._optimizers)
        rates = [group.get(RATE) for group in groups]
        plain = not any(isinstance(one, Tensor) for one in rates)
        self._values = values if plain else []
        return {**self._new_rates([_number(one) for one in rates]), **self._new_settings(groups)}

    def _new_rates(self, rates: list[float | None]) -> dict[str, float]:
        if not rates or rates == self._known:
            return {}
        self._known = rates
        first = rates[0]
        if first is None:
            return {}
        found = {RATE: first}
        for index, rate in enumerate(rates):
            if rate is not None and rate != first:
                found[rate_name(index)] = rate
        return found

    def _new_settings(self, groups: list[dict[str, object]]) -> dict[str, float]:
        """Settings that were there from the beginning are in the checkpoints."""
        before, self._settings = self._settings, dict(_settings(groups))
        return {name: value for name, value in self._settings.items() if before.get(name) != value}


def _settings(groups: Iterable[Mapping[str, object]]) -> Iterator[tuple[str, float]]:
    for index, group in enumerate(groups):
        for key, value in group.items():
            names = setting_names(index, key, value)
            numbers = value if isinstance(value, tuple) else (value,)
            yield from zip(names, map(float, numbers if names else ()), strict=True)


def _are_same(one: list[list[object]], other: list[list[object]]) -> bool:
    """Compare by identity first, then by value; what cannot be compared is another one."""
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):  # of tensors or arrays among the settings
        return False


def with_earlier_rates(
    signals: Mapping[str, float], before: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the signals of a record with the rates and settings of the one before it, where no new
    ones are noted."""
    left_out = RATE if RATE in signals else None
    kept = {
        name: rate
        for name, rate in before.items()
        if (kind := name.partition(".")[0]) in _KEPT and kind != left_out
    }
    return {**kept, **signals} if kept else signals


def _number(rate: object) -> float | None:
    if type(rate) is float:
        return rate
    if isinstance(rate, Tensor):
        return float(rate) if rate.is_cpu and rate.numel() == 1 else None
    return float(rate) if isinstance(rate, (int, float)) else None
