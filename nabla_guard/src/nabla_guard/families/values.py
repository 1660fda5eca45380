"""Whether parameters change: by a step, between steps, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import OptimizerFacts, ParameterFacts
from ..loop.exact import sample_of
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.scaler import was_skipped

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientRecord
    from ..loop.live import LiveLoop

__all__ = ["StillFacts", "ValueWatch"]

_SETTLED = 3
_ULPS = 4.0
_OFTEN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StillFacts:
    """Parameters of an optimizer that its first steps left bit-identical.

    Attributes:
        unchanged: parameters that are bit-identical although their gradient was not zero and
            the step was large enough to show in their dtype.
        by_step: whether the steps themselves changed nothing; else something put the values back.
        others: number of parameters that changed.
        steps: number of steps between the two looks.
        rates: learning rate of the group of each of them.
    """

    unchanged: tuple[ParameterFacts, ...]
    by_step: bool
    others: int
    steps: int
    rates: tuple[float, ...]


@dataclass(slots=True, eq=False)
class _Looks:
    """Copies of the parameters of one optimizer that have not been seen to change."""

    since: int
    samples: dict[int, Tensor] = field(default_factory=dict)
    whole: dict[int, Tensor] = field(default_factory=dict)
    changed: int = 0
    moved_by_step: bool = False
    rates: tuple[float, ...] = ()
    spoilt: bool = False


class ValueWatch(Watch):
    """Compares parameters around the first steps of each optimizer; bit by bit where in doubt.

    A parameter is done with as soon as it is seen to change, which most do in the first step.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.edited: dict[int, int] = {}
        self._looks: dict[int, _Looks] = {}
        self._still: dict[int, StillFacts] = {}
        self._kept: dict[int, list[tuple[GradientRecord, Tensor]]] = {}
        self._globs: tuple[str, ...] = ()
        self._thawed: list[str] = []
        self._frozen: dict[int, tuple[str, Tensor]] = {}
        self._steps = 0
        self._counts: dict[int, tuple[int, int, int]] = {}

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return EVERY_EVENT if self.is_done else frozenset()

    @property
    def is_done(self) -> bool:
        """Whether nothing is looked at any more."""
        looks = self._looks.values()
        return not (self._globs or self._kept or any(look.samples or look.whole for look in looks))

    @property
    def _is_looking(self) -> bool:
        return any(looks.samples or looks.whole for looks in self._looks.values())

    def declare(self, frozen: tuple[str, ...]) -> None:
        """Watch the values of parameters whose name matches one of these globs."""
        self._globs = frozen

    def take_thawed(self) -> list[str]:
        """Return the names of frozen parameters that changed since the last call."""
        thawed, self._thawed = self._thawed, []
        return thawed

    def still(self, optimizer: OptimizerFacts) -> StillFacts | None:
        """Return what the first steps of an optimizer left unchanged, once it is known."""
        return self._still.pop(id(optimizer), None)

    def keep(self, optimizer: OptimizerFacts) -> None:
        """Keep a copy of the parameters of an optimizer, to be compared at the end."""
        record = self.loop.book.of(optimizer)
        if record is not None and id(optimizer) not in self._kept:
            self._kept[id(optimizer)] = [
                (found, parameter.detach().clone())
                for found in record.records
                if (parameter := found.ref()) is not None
            ]

    def identical(self, optimizer: OptimizerFacts) -> tuple[int, int, int] | None:
        """How many of the kept parameters are bit-identical, of how many, after how many steps."""
        return self._counts.get(id(optimizer))

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        facts = record.facts
        if self._globs:
            self._check_frozen()
        if not record.judged:
            return
        if id(facts) in self._kept and (facts.steps < _OFTEN or facts.steps % _OFTEN == 0):
            self._compare(facts)
        if facts.closure:
            return
        if facts.steps and facts.steps < _SETTLED + 1:
            self._note_edits(record)
        looks = self._looks.get(id(facts))
        if looks is None:
            if facts.steps == 0:
                self._looks[id(facts)] = _begin(record, optimizer)
            return
        self._go_on(looks, record, optimizer)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        looks = self._looks.get(id(record.facts))
        if looks is not None and looks.whole and not looks.moved_by_step:
            pairs = _pairs(record, looks.whole)
            looks.moved_by_step = any(not torch.equal(now, then) for _, now, then in pairs)

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        for facts in [record.facts for record in self.loop.book]:
            if id(facts) in self._kept:
                self._compare(facts)
        self._kept.clear()
        self._looks.clear()

    # ------------------------------------------------------------------ private
    def _check_frozen(self) -> None:
        """Compare samples of the declared parameters, in the first steps and now and then."""
        self._steps += 1
        if self._steps > _OFTEN and self._steps % _OFTEN:
            return
        self.loop.roots.refresh()
        for found in self.loop.gradients:
            parameter, name = found.ref(), found.facts.name
            if parameter is None or not any(fnmatchcase(name, glob) for glob in self._globs):
                continue
            before = self._frozen.setdefault(id(found), (name, sample_of(parameter)))
            if not torch.equal(before[1], sample_of(parameter)):
                self._thawed.append(name)
                self._frozen[id(found)] = (name, sample_of(parameter))

    def _compare(self, optimizer: OptimizerFacts) -> None:
        alive = [(found.ref(), then) for found, then in self._kept[id(optimizer)]]
        known = [(now, then) for now, then in alive if now is not None]
        same = sum(torch.equal(now.detach(), then) for now, then in known)
        if known:
            self._counts[id(optimizer)] = (same, len(known), optimizer.steps)

    def _note_edits(self, record: OptimizerRecord) -> None:
        """Count the steps before which a version counter moved outside of a step."""
        for found in record.records:
            parameter = found.ref()
            if parameter is None or found.data_version < 0:
                continue
            if parameter._version != found.data_version:
                self.edited[id(record.facts)] = self.edited.get(id(record.facts), 0) + 1
                return

    def _go_on(self, looks: _Looks, record: OptimizerRecord, optimizer: Optimizer) -> None:
        key = id(record.facts)
        rates = _rates(optimizer)
        still = was_skipped(optimizer) or record.facts.gradient != "nonzero"
        looks.spoilt = looks.spoilt or still or rates != looks.rates
        if looks.samples:
            same = _unchanged_samples(record, looks.samples)
            looks.changed = len(looks.samples) - len(same)
            looks.samples = {}
            looks.whole = {id(found): now.detach().clone() for found, now in same}
            looks.since = record.facts.steps
            return
        if not looks.whole or looks.spoilt:
            self._looks[key] = _Looks(since=record.facts.steps)  # done with
            return
        if record.facts.steps - looks.since >= _SETTLED - 1:
            self._still[key] = _judge(looks, record, optimizer)
            looks.whole = {}


def _begin(record: OptimizerRecord, optimizer: Optimizer) -> _Looks:
    looks = _Looks(since=0, rates=_rates(optimizer))
    for found in record.records:
        parameter = found.ref()
        if parameter is not None and _is_comparable(parameter):
            looks.samples[id(found)] = sample_of(parameter)
    return looks


def _is_comparable(parameter: Tensor) -> bool:
    plain = parameter.layout is torch.strided and not parameter.is_meta and parameter.numel() > 0
    return plain and parameter.is_floating_point() and not hasattr(parameter, "to_local")


def _unchanged_samples(
    record: OptimizerRecord, samples: dict[int, Tensor]
) -> list[tuple[GradientRecord, Tensor]]:
    return [
        (found, parameter)
        for found in record.records
        if id(found) in samples
        and (parameter := found.ref()) is not None
        and torch.equal(samples[id(found)], sample_of(parameter))
    ]


def _pairs(
    record: OptimizerRecord, whole: dict[int, Tensor]
) -> Iterable[tuple[GradientRecord, Tensor, Tensor]]:
    for found in record.records:
        parameter = found.ref()
        if parameter is not None and id(found) in whole:
            yield found, parameter.detach(), whole[id(found)]


def _judge(looks: _Looks, record: OptimizerRecord, optimizer: Optimizer) -> StillFacts:
    rates = {
        id(parameter): float(group["lr"])
        for group in optimizer.param_groups
        for parameter in group["params"]
        if isinstance(group.get("lr"), (int, float))
    }
    unchanged, others = [], looks.changed
    for found, now, then in _pairs(record, looks.whole):
        parameter = found.ref()
        rate = rates.get(id(parameter), 0.0)
        if not torch.equal(now, then):
            others += 1
        elif parameter is not None and _must_move(parameter, rate):
            unchanged.append((found.facts, rate))
    return StillFacts(
        unchanged=tuple(facts for facts, _ in unchanged),
        by_step=not looks.moved_by_step,
        others=others,
        steps=record.facts.steps,
        rates=tuple(rate for _, rate in unchanged),
    )


def _must_move(parameter: Tensor, rate: float) -> bool:
    """Whether a plain step of this size would show in the parameter's dtype."""
    grad = parameter.grad
    if grad is None or grad.is_sparse or rate == 0.0:
        return False
    resolution = float(torch.finfo(parameter.dtype).eps) * float(parameter.detach().abs().max())
    return abs(rate) * float(grad.detach().abs().max()) > _ULPS * resolution


def _rates(optimizer: Optimizer) -> tuple[float, ...]:
    return tuple(
        float(group["lr"]) if isinstance(group.get("lr"), (int, float)) else 0.0
        for group in optimizer.param_groups
    )
