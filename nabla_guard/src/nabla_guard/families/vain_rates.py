"""Learning rates that a program writes where no optimizer of torch reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from ..facts import OptimizerFacts
from ..loop.watch import Watch
from ..taps.optimizers import is_of_torch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["VainRate", "VainRateWatch"]

_NAMES = ("lr", "learning_rate")


@dataclass(slots=True, kw_only=True, eq=False)
class VainRate:
    """One attribute of an optimizer that is named like a learning rate.

    Attributes:
        optimizer: facts of the optimizer.
        name: what is written, e.g. ``"optimizer.lr"``.
        values: the values that it was seen to have, in order, each once.
        used: learning rates of the groups, which never changed.
        differing: looks at which it had changed and was the rate of no group.
    """

    optimizer: OptimizerFacts
    name: str
    used: tuple[float, ...]
    values: list[float] = field(default_factory=list)
    differing: int = 0


class VainRateWatch(Watch):
    """Reads such attributes in steps that are looked at in full; classes of torch only, since
    another one may read them.

    Attributes:
        rates: what was seen, by optimizer and name.
    """

    patient = frozenset({"step_started"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.rates: dict[tuple[int, str], VainRate] = {}
        self._unjudged: set[int] = set()

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        facts = record.facts
        if not facts.steps and not is_of_torch(optimizer):
            self._unjudged.add(id(facts))
        if id(facts) in self._unjudged:
            return
        for name, value in _written(optimizer):
            rate = self.rates.get((id(facts), name))
            if rate is None:
                rate = VainRate(optimizer=facts, name=name, used=facts.rates)
                self.rates[id(facts), name] = rate
            if rate.used != facts.rates:
                self._forget(facts)  # somebody sets the real ones
                return
            if value not in rate.values:
                rate.values.append(value)
            rate.differing += len(rate.values) > 1 and value not in rate.used

    def _forget(self, facts: OptimizerFacts) -> None:
        self._unjudged.add(id(facts))
        for key in [key for key in self.rates if key[0] == id(facts)]:
            del self.rates[key]


def _written(optimizer: Optimizer) -> Iterator[tuple[str, float]]:
    own = vars(optimizer)
    for name in _NAMES:
        if isinstance(own.get(name), (int, float)):
            yield f"optimizer.{name}", float(own[name])
    default = optimizer.defaults.get("lr")
    if isinstance(default, (int, float)):
        yield 'optimizer.defaults["lr"]', float(default)
