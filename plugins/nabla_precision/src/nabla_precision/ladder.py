"""The precision ladder: one line per module, its own error in each dtype against the limit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Measurement, ModulePrecision, PrecisionReport

__all__ = ["ladder_lines", "report_lines"]

_BAR = 10
_CELL = _BAR + 19
_DECADES = (-1.0, 4.0)
_MOST_ROWS = 60


def report_lines(report: PrecisionReport) -> list[str]:
    """Return the whole report: ladder, verdicts, advice, and what was not judged."""
    lines = ladder_lines(report)
    lines += [f"note: {note}" for note in report.notes]
    for issue in report.issues:
        lines += ["", f"{issue.severity.label.upper():8s} {issue.rule} {issue.name}"]
        lines += _wrapped(issue.message, "  ")
        lines += _wrapped(f"try        {issue.suggestion}", "  ", " " * 13)
    lines += ["", *_wrapped(_advice(report))]
    for entry in report.not_evaluated:
        lines += _wrapped(f"not evaluated: {entry.rule} – {entry.reason}")
    return lines


def ladder_lines(report: PrecisionReport, width: int = 100) -> list[str]:
    """Return the ladder: per dtype a bar for the own error, it in eps, and that of the whole model.

    Args:
        report: an audit.
        width: columns; names are cut to fit.
    """
    columns = list(report.dtypes)
    name_width = max(16, width - len(columns) * (_CELL + 2))
    lines = [
        f"Precision of {report.model}: the own error of its {len(report.modules)} modules, in eps",
        "(bars from 0.1 to 10^4 eps, ┃ is the limit); in brackets with all modules in that dtype.",
        "",
        " " * name_width + "".join(f"  {name:{_CELL}s}" for name in columns),
    ]
    for module in report.modules[:_MOST_ROWS]:
        lines.append(_row(module, columns, name_width))
    if len(report.modules) > _MOST_ROWS:
        lines.append(f"... and {len(report.modules) - _MOST_ROWS} more modules")
    return [line.rstrip() for line in lines]


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, 100, initial_indent=first, subsequent_indent=first if rest is None else rest
    )


def _row(module: ModulePrecision, columns: Sequence[str], name_width: int) -> str:
    label = module.label
    if len(label) >= name_width:
        label = label[: name_width - 1] + "…"
    if module.why_not:
        return f"{label:{name_width}s}  not evaluated: {module.why_not}"
    cells = [_cell(module.measurements.get(name)) for name in columns]
    return f"{label:{name_width}s}" + "".join(f"  {cell:{_CELL}s}" for cell in cells)


def _cell(found: Measurement | None) -> str:
    if found is None or found.why_not:
        return "not evaluated"
    own = math.inf if found.overflows else found.worst / found.eps
    text = "overflow" if found.overflows else _short(own)
    mark = " " if found.fits else "✗"
    bar = _bar(own, found.limit / found.eps)
    return f"{bar}{mark}{text:>8s} ({_short(found.propagated_error / found.eps)})"


def _bar(eps: float, limit_eps: float) -> str:
    filled, limit = _steps(eps), _steps(limit_eps)
    cells = ["█" if i < filled else "·" for i in range(_BAR)]
    cells.insert(limit, "┃")
    return "".join(cells)


def _steps(eps: float) -> int:
    """Return how many of the cells of a bar a number fills."""
    first, last = _DECADES
    if math.isnan(eps) or eps <= 0.0:
        return 0
    share = (math.log10(min(eps, 10**last)) - first) / (last - first)
    return max(0, min(_BAR, math.ceil(share * _BAR)))


def _short(value: float) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "inf"
    return f"{value:.2g}" if value < 100.0 else f"{value:.0f}" if value < 1e5 else f"{value:.0e}"


def _advice(report: PrecisionReport) -> str:
    parts = []
    for name in report.dtypes:
        paths = report.keep_in_float32(name)
        if name != "float32":
            keep = ", ".join(path or report.model for path in paths) or "nothing"
            parts.append(f"{name}: keep {keep} in float32")
    return "; ".join(parts) or f"{', '.join(report.dtypes)}: judged as it is"
