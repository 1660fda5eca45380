"""RUN104: a rise of the loss that waited for what the next evaluations say."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue

from ..calm import Calm
from ..chart import Chart
from ..rules.level import LOSS_LEVEL_SHIFT
from .check import Check

__all__ = ["DoubtedCheck"]


class DoubtedCheck(Check):
    """Tells what other checks left to the validation loss (:mod:`nabla_diagnose.doubts`)."""

    rules = (LOSS_LEVEL_SHIFT,)
    looks_back = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`; after a loss that is not finite no evaluation will tell."""
        return chart.doubts.release() if chart.broken is not None else ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`; calm rows are finite."""
        return True

    def validation(self, chart: Chart, value: float) -> Iterable[Issue]:
        """See :class:`Check`."""
        if not math.isfinite(value):
            return chart.doubts.release()
        chart.doubts.note(chart.now.row, value)
        return chart.doubts.settle(chart.now.row)

    def finish(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        return chart.doubts.release()
