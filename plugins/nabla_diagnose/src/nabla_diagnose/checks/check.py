"""What a check is, and how it states a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from nabla_core.issue import Evidence, Issue, Location
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from ..calm import Calm
from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..stretch import Stretch

__all__ = ["Check", "Finding", "LayerCheck", "verdict"]


class Check:
    """Decides some rules over a chart. Each method is called at its own pace, if overridden.

    Attributes:
        rules: the rules that it decides.
        done: set when no further row or block can change its verdict.
        first_block: number of blocks before which :meth:`block` does and says nothing.
        looks_back: whether :meth:`block` needs more than the losses, the blocks and the last row:
            what :meth:`pass_over` remembers, or further signals.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    first_block: ClassVar[float] = 0
    done = False
    looks_back: ClassVar[bool] = True

    def row(self, chart: Chart) -> Iterable[Issue]:
        """Judge a row with a loss. In every step: constant time, no formatting when all is well."""
        return ()

    def record(self, chart: Chart) -> Iterable[Issue]:
        """Judge a record that has losses beside the training loss, or instead of it."""
        return ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """Say between which bounds :meth:`row` would say nothing of the next rows, and no more.

        Changes nothing. Of rows between the bounds of all checks :meth:`pass_over` takes the place
        of :meth:`row`, and the bounds must hold after it, until a row is looked at. ``False`` if
        every row must be seen, as when a check is waiting for something.
        """
        return False

    def ceilings(self, chart: Chart) -> Iterator[float]:
        """Yield bounds of the loss that hold until the next block is complete, if there are any.

        Each is as in :meth:`narrow`; the cheapest one comes first, and the last one is the true
        one: further ones are asked for only when a loss is above all before.
        """
        yield math.inf

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """Remember of calm rows what :meth:`row` would have; the chart has their losses already.

        Called before the next row that is looked at, before the next :meth:`block` that
        ``looks_back``, and at the end.
        """

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Judge after each block of ten finite losses."""
        return ()

    def needs_rest(self, chart: Chart) -> bool:
        """Say of a check that ``looks_back`` whether :meth:`block` would, asked now."""
        return True

    def idle_until(self, chart: Chart) -> float:
        """Return the number of blocks before which :meth:`block` would do and say nothing.

        It is asked then, or after the next row that is looked at, whatever comes first.
        """
        return 0

    def validation(self, chart: Chart, value: float) -> Iterable[Issue]:
        """Judge after a validation loss."""
        return ()

    def finish(self, chart: Chart) -> Iterable[Issue]:
        """Judge the whole run."""
        return ()


class LayerCheck(Check):
    """Decides rules over measurements of layers."""

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """Judge one measurement of the layers."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a verdict states besides its rule.

    Attributes:
        message: one sentence with the measured value and the limit.
        onset: row at which it began, as far as known.
        where: layer.
        severity: when it differs from that of the rule.
        confidence: below 1 for a statistical verdict.
        evidence: the numbers.
    """

    message: str
    onset: Moment
    where: str | None = None
    severity: Severity | None = None
    confidence: float = 0.9
    evidence: Mapping[str, Evidence] = field(default_factory=dict)


def verdict(rule: Rule, chart: Chart, finding: Finding) -> Issue:
    """Make the issue of a finding; its step is the onset, the evidence says when it was noticed."""
    evidence = dict(finding.evidence)
    return rule.issue(
        finding.message,
        step=finding.onset.step,
        where=None if finding.where is None else Location(module=finding.where),
        phase=None,
        severity=finding.severity,
        confidence=finding.confidence,
        row=finding.onset.row,
        noticed_step=chart.step,
        **evidence,
    )
