"""What a shadow sample found, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..facts import Place

__all__ = ["WHOLE_STEP", "OpError", "RangeRisk", "RegionError", "Sample", "Unsupported"]

WHOLE_STEP = "the step"
"""What has no shadow when the step as a whole cannot be executed again."""

RiskKind = Literal["exp", "flush", "range"]
"""An argument of ``exp`` near its limit, a result all of whose values are too small for its dtype,
or one near the largest number of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpError:
    """The op in which the error of a region begins.

    Attributes:
        op: plain name, e.g. ``"sub"``.
        module: path of the module that ran it; ``None`` outside of modules.
        place: the user's line.
        error: relative error of its result against the float64 mirror of the region.
        explained: change of the same result when the region's inputs move by four roundings.
        local: relative error against the same op in float64 on the actual low-precision inputs.
        operands: root mean square of its largest operand.
        result: root mean square of its float64 result.
        flushed: share of non-zero results that are zero or subnormal in the dtype.
        dtype: dtype of its result.
        overflowed: its result is infinite where float64 holds it.
        hidden_by: op that made a finite number of that infinity.
        sample: position along the batch axis of its first infinity.
    """

    op: str
    module: str | None
    place: Place | None
    error: float
    explained: float
    local: float
    operands: float
    result: float
    flushed: float
    dtype: str
    overflowed: bool = False
    hidden_by: str = ""
    sample: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionError:
    """A part of the program whose result is wrong although its inputs are taken for exact.

    Attributes:
        module: path of the module whose own code it is; ``None`` outside of modules.
        model: class name of the root module.
        error: relative error of what leaves the region.
        limit: the dtype's limit.
        explained: what four roundings of the region's inputs do to the result.
        dtype: coarsest dtype that the region computes in.
        first: the op in which it begins.
        gradient_free: it is a loss, of which the wrong value is a term or a factor: its gradient
            does not depend on that value.
        whole: the region is the whole step, from its batch and parameters on.
        loss: the loss of the step; ``None`` when there is none.
        loss_in_float64: the same loss, everything computed in float64.
    """

    module: str | None
    model: str
    error: float
    limit: float
    explained: float
    dtype: str
    first: OpError
    gradient_free: bool = False
    whole: bool = False
    loss: float | None = None
    loss_in_float64: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRisk:
    """A finite number near the end of its dtype's range.

    Attributes:
        kind: see :data:`RiskKind`.
        op: plain name of the op.
        place: the user's line.
        module: path of the module; ``None`` outside of modules.
        value: the largest argument of ``exp``, or the largest magnitude of the result.
        limit: beyond it the result is infinite; for a flush, the smallest number of full precision.
        dtype: dtype of the result.
    """

    kind: RiskKind
    op: str
    place: Place | None
    module: str | None
    value: float
    limit: float
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """Something that has no shadow.

    Attributes:
        what: name of the op, or the part of the sample.
        reason: why.
    """

    what: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Sample:
    """The outcome of one shadow sample.

    Attributes:
        step: step of the loop.
        errors: wrong regions, in the order in which they ran.
        risks: numbers near the end of their range.
        unsupported: what was not judged.
        worst: largest relative error of a region that was found healthy.
    """

    step: int
    errors: list[RegionError] = field(default_factory=list)
    risks: list[RangeRisk] = field(default_factory=list)
    unsupported: list[Unsupported] = field(default_factory=list)
    worst: float = 0.0
