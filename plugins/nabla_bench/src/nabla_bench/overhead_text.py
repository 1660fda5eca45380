"""What watching costs as tables."""

from __future__ import annotations

from nabla_core.reporters.style import Style

from .costs import Cost, WorkloadCost
from .overhead import Overhead
from .timing import Spread

__all__ = ["overhead_text"]

_LOUD = 0.1
_WIDTHS = "{:<10} {:>7}   {:>13}   {:>11}"


def overhead_text(overhead: Overhead, style: Style) -> str:
    """Return a table per workload, and what the numbers do not show."""
    lines = [
        f"cost of a watched step, in bare steps ({overhead.options.device}, one thread, "
        f"{_rounds(overhead.options.rounds)})"
    ]
    for workload in overhead.workloads:
        lines += ["", *_table(workload, style)]
    lines += [""] * bool(overhead.not_evaluated)
    lines += [f"not evaluated: {mode}: {why}" for mode, why in overhead.not_evaluated.items()]
    lines += _cut_short(overhead)
    loud = [workload.workload for workload in overhead.workloads if _is_loud(workload)]
    if loud:
        lines += ["", f"The bare loop of {', '.join(loud)} varies by more than {_LOUD:.0%} by "]
        lines[-1] += "itself: end other programs, or give more --rounds and --budget-s."
    return "\n".join(lines) + "\n"


def _cut_short(overhead: Overhead) -> list[str]:
    """Say where there was no time for all rounds."""
    wanted, budget_s = overhead.options.rounds, overhead.options.budget_s
    short = [workload for workload in overhead.workloads if workload.rounds < wanted]
    if not short:
        return []
    told = ", ".join(f"{_rounds(one.rounds)} of {one.workload}" for one in short)
    return ["", f"Only {told} ended within {budget_s:g} s: give more by --budget-s."]


def _rounds(number: int) -> str:
    return f"{number} round" if number == 1 else f"{number} rounds"


def _table(workload: WorkloadCost, style: Style) -> list[str]:
    bare, control = workload.bare_step_s, workload.control
    head = (
        f"{workload.workload}: {workload.summary}; {1e3 * bare.median:.3g} ms a step, "
        f"quartiles {1e3 * bare.lower:.3g} to {1e3 * bare.upper:.3g}"
    )
    names = _WIDTHS.format("", "median", "quartiles", "at first")
    noise = _WIDTHS.format("(bare)", f"{control.median:.3f}", _quartiles(control), "")
    rows = [_row(cost, style) for cost in workload.costs]
    return [style.paint(head, "bold"), names, noise.rstrip(), *rows]


def _row(cost: Cost, style: Style) -> str:
    spread = cost.ratio
    first = f"+{cost.first_steps:.0f} steps"
    row = _WIDTHS.format(cost.mode, f"{spread.median:.3f}", _quartiles(spread), first)
    if not cost.is_hidden:
        return row
    return f"{row}   {style.paint('within the noise', 'dim')}"


def _quartiles(spread: Spread) -> str:
    return f"{spread.lower:.3f}–{spread.upper:.3f}"


def _is_loud(workload: WorkloadCost) -> bool:
    """Whether the bare loop differs from itself, also where one round has no quartiles."""
    control = workload.control
    return max(control.relative_width, abs(control.median - 1.0)) > _LOUD
