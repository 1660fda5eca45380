"""What an audit found: numbers for each module and dtype, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nabla_core.issue import Issue
from nabla_core.numbers import json_number
from nabla_core.report import NotEvaluated, Section
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .rules import RULES

__all__ = ["Headroom", "Measurement", "ModulePrecision", "PrecisionReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """How the exact numbers of a tensor lie in the range of a dtype.

    Attributes:
        overflow_share: share of the non-zero entries that are larger than its largest number.
        subnormal_share: share of them that lose digits because they are small.
        flushed_share: share of them that become zero.
        bits_left: powers of two between the largest entry and the largest number; NaN if all
            entries are zero.
    """

    overflow_share: float = 0.0
    subnormal_share: float = 0.0
    flushed_share: float = 0.0
    bits_left: float = float("nan")

    @property
    def lost_share(self) -> float:
        """Share that loses digits or becomes zero."""
        return self.subnormal_share + self.flushed_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One module in one dtype. Errors are relative, in the L2 norm; NaN is not measured.

    Attributes:
        local_error: of its output, run alone on exact inputs.
        grad_input_error: of the gradient that it passes back, likewise.
        grad_weight_error: of the gradients of its own parameters, likewise.
        propagated_error: of its output when the whole model runs in this dtype; what exceeds the
            local error is inherited from the modules before it.
        overflows: whether it produces an infinity or NaN where the exact number is in range.
        output: headroom of its outputs.
        gradient: headroom of the gradient of its outputs.
        lost_gradient: share of the gradient's norm that no loss scale saves; NaN if not known.
        limit: local errors above this are reported.
        eps: distance of 1 to the next number of the dtype.
        why_not: why it could not be judged in this dtype.
    """

    local_error: float = float("nan")
    grad_input_error: float = float("nan")
    grad_weight_error: float = float("nan")
    propagated_error: float = float("nan")
    overflows: bool = False
    output: Headroom = field(default_factory=Headroom)
    gradient: Headroom | None = None
    lost_gradient: float = float("nan")
    limit: float = 0.0
    eps: float = 1.0
    why_not: str = ""

    @property
    def worst(self) -> float:
        """The largest of the local errors; NaN when none was measured."""
        errors = (self.local_error, self.grad_input_error, self.grad_weight_error)
        return max((error for error in errors if error == error), default=float("nan"))

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against this dtype for this module."""
        lost = self.lost_gradient > self.limit
        return not (self.overflows or self.worst > self.limit or lost)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        numbers = {
            "local_error": self.local_error,
            "grad_input_error": self.grad_input_error,
            "grad_weight_error": self.grad_weight_error,
            "propagated_error": self.propagated_error,
            "limit": self.limit,
            "eps": self.eps,
            "overflow_share": self.output.overflow_share,
            "subnormal_share": self.output.subnormal_share,
            "flushed_share": self.output.flushed_share,
            "bits_left": self.output.bits_left,
        }
        if self.gradient is not None:
            numbers["gradient_lost_share"] = self.gradient.lost_share
        known: dict[str, object] = {name: json_number(value) for name, value in numbers.items()}
        return known | {"overflows": self.overflows, "fits": self.fits, "why_not": self.why_not}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePrecision:
    """One module.

    Attributes:
        path: dotted path in the model; empty for the model itself.
        kind: class name.
        own_code: whether it calls other modules, and only the arithmetic in between is judged.
        calls: how often it was called; the numbers are the worst of them.
        measurements: by the name of the dtype.
        recommended: first candidate that fits; ``"float32"`` where none does.
        why_not: why nothing could be judged; empty where something was.
    """

    path: str
    kind: str
    own_code: bool
    calls: int
    measurements: Mapping[str, Measurement]
    recommended: str
    why_not: str = ""

    @property
    def label(self) -> str:
        """How texts call it."""
        name = f"{self.path or self.kind} ({self.kind})" if self.path else self.kind
        return f"own code of {name}" if self.own_code else name

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "path": self.path,
            "kind": self.kind,
            "own_code": self.own_code,
            "calls": self.calls,
            "recommended": self.recommended,
            "why_not": self.why_not,
            "dtypes": {name: found.to_dict() for name, found in self.measurements.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionReport(ResultMixin):
    """The outcome of an audit.

    Attributes:
        model: class name of the model.
        dtypes: names of the candidate dtypes, in the order of preference.
        modules: every module that computes something, in the order of the first call.
        issues: the verdicts.
        notes: what was done otherwise than usual.
        not_evaluated: what could not be judged, with the reason.
        fail_on: severity from which an issue fails the audit.
    """

    model: str
    dtypes: tuple[str, ...]
    modules: tuple[ModulePrecision, ...]
    issues: tuple[Issue, ...]
    notes: tuple[str, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    fail_on: Severity = Severity.MEDIUM

    def keep_in_float32(self, dtype: str = "") -> tuple[str, ...]:
        """Return the paths of the modules that must not run in ``dtype``.

        Args:
            dtype: name of a candidate; by default the first that is narrower than float32.
        """
        name = dtype.removeprefix("torch.") or self.narrow
        return tuple(
            found.path
            for found in self.modules
            if name in found.measurements and not found.measurements[name].fits
        )

    @property
    def narrow(self) -> str:
        """The first candidate that is narrower than float32."""
        return next((name for name in self.dtypes if name != "float32"), "float16")

    def exclusions(self, dtype: str = "") -> str:
        """Return Python source that keeps the named modules in float32 under autocast.

        Args:
            dtype: as for :meth:`keep_in_float32`.
        """
        from .exclusions import exclusion_source

        return exclusion_source(self, dtype.removeprefix("torch.") or self.narrow)

    def ladder(self, width: int = 100) -> str:
        """Return one line per module: its own error in each dtype, against the limit."""
        from .ladder import ladder_lines

        return "\n".join(ladder_lines(self, width))

    @property
    def rules_used(self) -> tuple[str, ...]:
        """IDs of the rules that judged it."""
        return tuple(rule.id for rule in RULES)

    def sections(self) -> tuple[Section, ...]:
        """Return what a report shows of it: the errors of the modules, dtype by dtype."""
        from .plots import precision_ladder

        return (Section(title="Precision ladder", plots=(precision_ladder(self),)),)

    def format(self) -> str:
        """Return the ladder and the verdicts, without colour."""
        from .ladder import report_lines

        return "\n".join(report_lines(self))

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "model": self.model,
            "dtypes": list(self.dtypes),
            "modules": [found.to_dict() for found in self.modules],
            "issues": [issue.to_dict() for issue in self.issues],
            "notes": list(self.notes),
            "not_evaluated": [entry.to_dict() for entry in self.not_evaluated],
        }
