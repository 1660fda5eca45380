"""What happens to a step that is not finite: it is reported, stopped before it acts, or skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor

from nabla_core.errors import NablaError

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord

__all__ = ["POLICIES", "NonFiniteStop", "OnNonFinite", "StepPolicy"]

OnNonFinite = Literal["report", "stop", "skip"]
"""``report`` only says it, ``stop`` raises before the optimizer acts, ``skip`` hides the gradients
from the optimizer, so that it leaves the parameters and its state as they are."""

POLICIES = ("report", "stop", "skip")


class NonFiniteStop(NablaError):
    """A step was not finite and ``on_nonfinite="stop"`` was asked for; parameters are as before.

    With a closure, the optimizer may have moved the parameters already within this step.
    """


class StepPolicy:
    """Acts on bad steps.

    Args:
        chosen: see :data:`OnNonFinite`.
    """

    def __init__(self, chosen: OnNonFinite = "report") -> None:
        self.chosen = chosen
        self._hidden: list[tuple[Tensor, Tensor]] = []

    def act(self, record: OptimizerRecord, verdict: str, step: int) -> None:
        """Stop or skip the step that ``record``'s optimizer is about to make.

        Raises:
            NonFiniteStop: the policy is ``stop``.
        """
        if self.chosen == "stop":
            raise NonFiniteStop(
                f"step {step} was stopped before {record.facts.name}.step: {verdict}"
            )
        if self.chosen == "skip" and not record.facts.closure:
            for found in record.records:
                parameter = found.ref()
                if parameter is not None and parameter.grad is not None:
                    self._hidden.append((parameter, parameter.grad))
                    parameter.grad = None

    def end(self) -> None:
        """Give the gradients of a skipped step back: they belong to the user's code."""
        for parameter, grad in self._hidden:
            if parameter.grad is None:
                parameter.grad = grad
        self._hidden.clear()
