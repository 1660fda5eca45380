"""What a resumed training did not get back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.rule import Rule
from nabla_core.severity import Severity

__all__ = ["Resumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A training that goes on at a step, with an optimizer that remembers nothing of it.

    The Trainer restores optimizer and schedule together, and neither where a file of the two is
    missing; it says nothing then.

    Attributes:
        global_step: at which it goes on, as ``trainer_state.json`` counts.
        position: of the schedule at that time; ``None`` if it has none.
    """

    global_step: int
    position: int | None

    @classmethod
    def of(cls, global_step: int, optimizer: object, scheduler: object) -> Resumed | None:
        """Return what is to be looked at after the next step, if anything is.

        Args:
            global_step: of the trainer, when the training begins.
            optimizer: of the trainer, perhaps wrapped by accelerate.
            scheduler: of the trainer.
        """
        if global_step <= 0 or _remembered(optimizer) != 0:
            return None
        position = getattr(scheduler, "last_epoch", None)
        return cls(
            global_step=global_step, position=position if isinstance(position, int) else None
        )

    def issue(self, rule: Rule, optimizer: object) -> Issue | None:
        """Return an issue if the optimizer, which had no state, has one after its next step.

        One without moments, as SGD is, has lost nothing.

        Args:
            rule: what is broken.
            optimizer: of the trainer, which has made a step.
        """
        remembered = _remembered(optimizer)
        if not remembered:
            return None
        name = type(getattr(optimizer, "optimizer", optimizer)).__name__
        text = (
            f"The training goes on at step {self.global_step}, and {name} began with the state of "
            f"0 of {remembered} parameters (limit {remembered}): its moments start from zero"
        )
        started_over = self.position is not None and self.position < self.global_step
        if started_over:
            text += f", and the schedule at position {self.position}"
        return rule.issue(
            f"{text}. The checkpoint lacks optimizer.pt or scheduler.pt.",
            step=0,
            where=Location(op="optimizer"),
            phase="resume",
            severity=Severity.HIGH if started_over else Severity.MEDIUM,
            component="optimizer",
            restored_parameters=Quantity(value=0, unit="parameters", limit=remembered),
            resumed_at=self.global_step,
        )


def _remembered(optimizer: object) -> int | None:
    """How many parameters the optimizer has a state of; ``None`` where that cannot be seen."""
    state = getattr(optimizer, "state", None)
    return len(state) if isinstance(state, Mapping) else None
