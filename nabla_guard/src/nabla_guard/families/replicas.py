"""Optimizers of one process that train equal copies of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..loop.exact import tensors_in
from ..loop.watch import Watch
from .backwards import fingerprint

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..facts import OptimizerFacts
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["ReplicaFacts", "ReplicaWatch"]


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaFacts:
    """Two optimizers whose parameters had the same bits after each of their first steps.

    Attributes:
        first: class name of one optimizer.
        second: of the other.
        equal_steps: steps after which all parameters had the same bits.
        parted_at: step of the loop after which they first differed; ``None`` while they are equal.
        parameter: name of the first parameter that differed.
        same_rates: whether the learning rates were equal at that step.
        same_data: whether both were given the same inputs in every step in which they were equal.
    """

    first: str
    second: str
    equal_steps: int = 0
    parted_at: int | None = None
    parameter: str = ""
    same_rates: bool = True
    same_data: bool = True


class ReplicaWatch(Watch):
    """Compares pairs of optimizers with equal shapes, until they first differ.

    Attributes:
        pairs: those that were equal at least once.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.pairs: list[ReplicaFacts] = []
        self._pairs: dict[tuple[int, int], ReplicaFacts | None] = {}
        self._inputs: dict[int, list[int]] = {}  # of each optimizer, since its last step
        self._last: dict[int, list[int]] = {}  # in its last step

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        some = sum(not record.idle for record in self.loop.book)
        return frozenset({"forward_ended", "step_ended"}) if some < 2 else frozenset()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Take a fingerprint of the inputs of models that may be replicas."""
        if not torch.is_grad_enabled() or not self._may_pair(root):
            return
        given = [fingerprint(tensor) for _, tensor in tensors_in([args, dict(kwargs)])]
        for owner in _owners(root):
            self._inputs.setdefault(id(owner), []).extend(given)

    def _may_pair(self, root: RootRecord) -> bool:
        """Whether two optimizers were equal at some step, or none has made two yet."""
        if any(pair.parted_at is None for pair in self.pairs):
            return True
        owners = list(_owners(root))
        return bool(owners) and owners[0].steps < 2 and len(list(self.loop.book)) > 1

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Compare with every optimizer that has made as many steps."""
        self._last[id(record.facts)] = self._inputs.pop(id(record.facts), [])
        others = [other for other in self.loop.book if other is not record]
        for other in others:
            if other.facts.steps == record.facts.steps + 1:  # this step is not counted yet
                key = (min(id(record), id(other)), max(id(record), id(other)))
                if key not in self._pairs:
                    self._pairs[key] = self._begin(record, other)
                pair = self._pairs[key]
                if pair is not None and pair.parted_at is None:
                    self._compare(pair, record, other, key)

    def _begin(self, record: OptimizerRecord, other: OptimizerRecord) -> ReplicaFacts | None:
        mine, theirs = _tensors(record), _tensors(other)
        if not mine or [p.shape for p in mine] != [p.shape for p in theirs]:
            return None
        if {id(p) for p in mine} & {id(p) for p in theirs}:
            return None
        return ReplicaFacts(first=record.facts.name, second=other.facts.name)

    def _compare(
        self,
        pair: ReplicaFacts,
        record: OptimizerRecord,
        other: OptimizerRecord,
        key: tuple[int, int],
    ) -> None:
        mine, theirs = _tensors(record), _tensors(other)
        differing = next(
            (
                index
                for index, (one, two) in enumerate(zip(mine, theirs, strict=False))
                if one.device != two.device or not torch.equal(one, two)
            ),
            None,
        )
        if differing is None and len(mine) == len(theirs):
            pair.equal_steps += 1
            given = [self._last.get(id(found.facts), []) for found in (record, other)]
            pair.same_data = pair.same_data and bool(given[0]) and given[0] == given[1]
            if pair.equal_steps == 1:
                self.pairs.append(pair)
        elif not pair.equal_steps:
            self._pairs[key] = None
        else:
            pair.parted_at = self.loop.index
            pair.same_rates = _rates(record) == _rates(other)
            if differing is not None:
                pair.parameter = record.records[differing].facts.name


def _owners(root: RootRecord) -> Sequence[OptimizerFacts]:
    held = root.facts.parameters
    return held[0].optimizers if held else ()


def _tensors(record: OptimizerRecord) -> list[Tensor]:
    found = (known.ref() for known in record.records)
    return [parameter.detach() for parameter in found if parameter is not None]


def _rates(record: OptimizerRecord) -> list[object]:
    optimizer = record.ref()
    return [] if optimizer is None else [group.get("lr") for group in optimizer.param_groups]
