"""Tables of losses: lengths and cosines at one place, and a heat map over all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gram_facts import GramFacts
from .bars import bar, shade, signed

if TYPE_CHECKING:
    from ..loss_result import LossReport
    from ..loss_tracing import LossTrace

__all__ = ["report_lines", "trace_lines"]

_WIDTH = 12
_ROWS = 40


def report_lines(report: LossReport) -> list[str]:
    """Return lengths, cosines and cancellation at one place."""
    lines = [f"{report.name}: cancellation {report.cancellation:.3f}"]
    facts = GramFacts(report.gram)
    width = max(len(name) for name in report.losses)
    for index, name in enumerate(report.losses):
        share, norm = float(facts.share[index]), float(facts.norms[index])
        lines.append(f"  {name:<{width}}  {norm:>10.4g}  {bar(share, _WIDTH)} {share:.0%}")
    for (first, second), cosine in report.cosines.items():
        lines.append(f"  cosine of {first} and {second}: {signed(cosine)}")
    return lines


def trace_lines(trace: LossTrace) -> list[str]:
    """Return the whole-model table, then one row per layer with a cell per pair of losses."""
    if trace.level == "progress":
        lines = [trace.undecided] if trace.undecided else []
        return lines + [f"  {name}: {change:+.4g}" for name, change in trace.changes.items()]
    lines = report_lines(trace.report())
    pairs = list(trace.report().cosines)
    if not trace.layers or not pairs:
        return lines
    lines += ["", "layers: share of the gradient length, then the cosine of " + _legend(pairs)]
    lengths = {name: float(gram.diagonal().sum()) ** 0.5 for name, gram in trace.layers.items()}
    largest = max(lengths.values(), default=0.0) or 1.0
    width = min(40, max(len(name) for name in trace.layers))
    for name, gram in list(trace.layers.items())[:_ROWS]:
        cosines = GramFacts(gram).cosines
        order = {loss: index for index, loss in enumerate(trace.losses)}
        values = [float(cosines[order[a], order[b]]) for a, b in pairs]
        cells = " ".join(f"{shade(value)}{signed(value)}" for value in values)
        lines.append(f"  {name[-width:]:<{width}}  {bar(lengths[name] / largest, _WIDTH)}  {cells}")
    if len(trace.layers) > _ROWS:
        lines.append(f"  and {len(trace.layers) - _ROWS} more")
    return lines


def _legend(pairs: list[tuple[str, str]]) -> str:
    return "; ".join(f"{first}, {second}" for first, second in pairs)
