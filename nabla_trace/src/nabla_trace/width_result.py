"""The outcome of ``nabla.trace.coordinate_check``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nabla_core.issue import Issue
from nabla_core.numbers import json_number
from nabla_core.reporters.style import counted
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

__all__ = ["LayerGrowth", "WidthResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGrowth:
    """How the change of one layer's output goes with the width.

    Attributes:
        name: path of the module.
        sizes: geometric mean over the runs of the root mean square of the change, per width.
        slope: exponent of the power law; NaN when it is not known.
        error: standard error of the slope.
        why_not: why there is no slope, if so.
    """

    name: str
    sizes: tuple[float, ...]
    slope: float = math.nan
    error: float = math.nan
    why_not: str = ""

    @classmethod
    def fitted(
        cls, name: str, widths: Sequence[int], runs: Sequence[Sequence[float]]
    ) -> LayerGrowth:
        """Fit a power law.

        Args:
            name: path of the module.
            widths: shape ``[W]``.
            runs: size of the change in each run, per width.
        """
        values = [value for row in runs for value in row]
        if not all(map(math.isfinite, values)):
            return cls(name=name, sizes=_means(runs), why_not="its output is not finite")
        if min(values) <= 0.0:
            return cls(name=name, sizes=_means(runs), why_not="its output does not change")
        x = [math.log2(width) for width, row in zip(widths, runs, strict=True) for _ in row]
        slope, error = _line(x, [math.log2(value) for value in values])
        return cls(name=name, sizes=_means(runs), slope=slope, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthResult(ResultMixin):
    """Growth of every layer with the width.

    Attributes:
        widths: that were built.
        steps: optimizer steps before the change was measured.
        layers: in the order in which they were called.
        issues: the verdicts.
        fail_on: severity from which an issue fails the result.
    """

    widths: tuple[int, ...]
    steps: int
    layers: tuple[LayerGrowth, ...]
    issues: tuple[Issue, ...] = ()
    fail_on: Severity = Severity.HIGH

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "widths": list(self.widths),
            "steps": self.steps,
            "layers": [
                {
                    "name": layer.name,
                    "sizes": [json_number(size) for size in layer.sizes],
                    "slope": json_number(layer.slope),
                    "error": json_number(layer.error),
                    "why_not": layer.why_not,
                }
                for layer in self.layers
            ],
            "issues": [issue.to_dict() for issue in self.issues],
        }

    def format(self) -> str:
        """Return one line per layer: the change at each width, and the slope."""
        head = "".join(f"{width:>10}" for width in self.widths)
        lines = [
            f"change of the output after {counted(self.steps, 'step')}, by width",
            f"{head}     slope",
        ]
        for layer in self.layers:
            sizes = "".join(f"{size:>10.3g}" for size in layer.sizes)
            found = layer.why_not or f"{layer.slope:+.2f} ± {layer.error:.2f}"
            lines.append(f"{sizes}  {found:>14}  {layer.name}")
        return "\n".join([*lines, "", ResultMixin.format(self)])


def _means(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return geometric means, and 0 or infinity where there is none."""
    return tuple(
        math.exp(sum(map(math.log, row)) / len(row)) if min(row) > 0 else 0.0 for row in runs
    )


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return slope and standard error of a least-squares line; more than two points."""
    count, middle, level = len(x), sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle) ** 2 for a in x)
    slope = sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - level - slope * (a - middle)) ** 2 for a, b in zip(x, y, strict=True))
    return slope, math.sqrt(rest / (count - 2) / spread)
