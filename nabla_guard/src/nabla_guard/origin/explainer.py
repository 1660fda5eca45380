"""Decides when a step is executed again: once for the first bad step, before the optimizer acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ..rules import RULES
from ..taps.instrument import INSTRUMENT
from .findings import Findings

if TYPE_CHECKING:
    from nabla_core.session import Session

    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientTable
    from .replay import Ending

__all__ = ["Explainer"]

_MAX_EXPLANATIONS = 8


class Explainer:
    """Explains the first bad step after a good one, a few times per run at most.

    Attributes:
        wanted: whether the person wants that; else no step is kept.

    Args:
        gradients: names of the parameters.
    """

    def __init__(self, gradients: GradientTable) -> None:
        self.wanted = True
        self._gradients = gradients
        self._explained = 0
        self._busy: set[int] = set()

    def arm(self, session: Session) -> None:
        """Keep the steps from now on, if a rule is selected that needs an explanation."""
        if self.wanted and any(session.selects(rule) for rule in RULES[:4]):
            from . import replay  # noqa: F401 - not in the step that is to be explained

            INSTRUMENT.keeper.start()

    def rest(self, record: OptimizerRecord) -> None:
        """A step was finite: the next bad one is worth an explanation again."""
        self._busy.discard(id(record))

    def again(self, record: OptimizerRecord, ends_in: Ending = "pass") -> Findings | None:
        """Execute the present step of an optimizer again.

        Args:
            record: the optimizer.
            ends_in: what is to be judged; see :func:`.replay.execute_again`.

        Returns:
            ``None`` when a step before it was explained and nothing was finite since.
        """
        from .replay import execute_again

        keeper = INSTRUMENT.keeper
        follows = bool(self._busy)
        self._busy.add(id(record))
        if follows or self._explained >= _MAX_EXPLANATIONS or not keeper.enabled:
            return None
        self._explained += 1
        optimizer = record.ref()
        since = 0 if optimizer is None else keeper.kept.marks.get(optimizer, 0)
        return execute_again(keeper.kept, self._parameters(record), since, ends_in=ends_in)

    def _parameters(self, record: OptimizerRecord) -> list[tuple[str, Tensor]]:
        return [
            (found.facts.name or f"parameter {index}", parameter)
            for index, found in enumerate(record.records)
            if (parameter := found.ref()) is not None
        ]
