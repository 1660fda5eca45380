"""What a step adds to the parameters: a copy before it, the difference after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nabla_guard.taps.scaler import was_skipped

from .live_facts import named_parameters
from .names import chosen
from .view import InputAbsent, StepView

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord

    from .declaration import Contract
    from .detector import ContractDetector
    from .live_facts import LiveFacts

__all__ = ["ChangeKeeper"]


class ChangeKeeper:
    """Measures the changes that one contract looks at, in the steps that it looks at.

    Attributes:
        signals: scalar facts of the step that is being made.

    Args:
        contract: looks at updates.
        live: shows the step.
        detector: judges it.
    """

    def __init__(self, contract: Contract, live: LiveFacts, detector: ContractDetector) -> None:
        self.signals: Mapping[str, float] = {}
        self._contract = contract
        self._live = live
        self._detector = detector
        self._before: list[tuple[Tensor, Tensor]] = []

    def before_step(self, record: OptimizerRecord, step: int) -> None:
        """See :class:`.gate.StepListener`."""
        self._before = []
        if step % self._contract.terms.every or was_skipped(record.ref()):
            return
        wanted = self._wanted(named_parameters(record))
        self._before = [(p, p.detach().clone()) for p in wanted.values() if p.requires_grad]

    def after_step(self, record: OptimizerRecord, step: int) -> None:
        """See :class:`.gate.StepListener`."""
        before, self._before = self._before, []
        if not before:
            return
        copies = {id(parameter): copy for parameter, copy in before}  # all of them are alive
        with torch.no_grad():
            updates = {
                name: now.detach() - copies[id(now)]
                for name, now in named_parameters(record).items()
                if id(now) in copies
            }
        self._live.after(record, updates)
        try:
            view = StepView(step, self._live.unscaled(self.signals), self._live)
            self._detector.report(self._detector.judge(view))
        finally:
            self._live.forget()
            self.signals = {}

    def _wanted(self, named: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what the contract may look at: before the first call names are not known."""
        try:
            return chosen(named, self._contract.parameters, "parameter of the optimizer")
        except InputAbsent:
            return named
