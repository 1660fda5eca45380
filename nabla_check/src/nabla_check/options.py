"""What a check may be asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, TypedDict

from nabla_core.errors import UsageError

from .keywords import refuse_unknown

if TYPE_CHECKING:
    from pathlib import Path

    import torch

__all__ = ["CotangentKind", "Level", "OperatorKeywords", "OperatorOptions"]

Level = Literal["first-order", "full"]
CotangentKind = Literal["random", "ones"]


class OperatorKeywords(TypedDict, total=False):
    """Keywords of :func:`nabla_check.operator`; see :class:`OperatorOptions`."""

    kwargs: Mapping[str, object]
    vjp_cotangent: CotangentKind
    check_forward: bool | None
    check_backward: bool | None
    check_finite_difference: bool | None
    check_determinism: bool | None
    check_jvp: bool | None
    check_double_backward: bool | None
    check_linearity: bool | None
    check_layout: bool | None
    check_precision: bool | None
    check_variations: bool | None
    check_contract: bool | None
    absolute_tolerance: float | None
    relative_tolerance: float | None
    finite_difference_epsilon: float | None
    max_finite_difference_elements: int | None
    dtypes: tuple[torch.dtype, ...] | None
    budget_s: float | None
    artifact_dir: str | Path | None
    artifact_raw_tensors: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """Options of one check. ``None`` runs a check when it applies, ``True`` demands it (where it
    cannot run, the result says so), ``False`` drops it.

    Attributes:
        level: ``first-order`` or ``full``.
        kwargs: keyword arguments of the operator.
        vjp_cotangent: ``random`` (signed normal numbers) or ``ones``.
        check_forward: compare outputs with the reference.
        check_backward: compare gradients with the reference, or with the numerical derivative.
        check_finite_difference: use the numerical derivative also beside a reference that agrees.
        check_determinism: repeat forward and backward.
        check_jvp: compare forward mode with the gradient.
        check_double_backward: compare second derivatives.
        check_linearity: scaled, summed and partial cotangents.
        check_layout: other memory layouts of inputs and cotangents.
        check_precision: rounding error in low precision.
        check_variations: other values and sizes around the given ones.
        check_contract: ``torch.library.opcheck`` for custom operators.
        absolute_tolerance: of comparisons with the reference, in the unit of the result.
        relative_tolerance: of comparisons with the reference, relative to the largest element.
        finite_difference_epsilon: first step size, relative to the size of the operand.
        max_finite_difference_elements: larger inputs get no numerical derivative.
        dtypes: low precisions to try; by default the given one, and float32 for float64 inputs.
        budget_s: seconds after which no further check starts.
        artifact_dir: folder for the evidence of a failure.
        artifact_raw_tensors: store tensors as well.
    """

    level: Level = "full"
    kwargs: Mapping[str, object] = field(default_factory=dict)
    vjp_cotangent: CotangentKind = "random"
    check_forward: bool | None = None
    check_backward: bool | None = None
    check_finite_difference: bool | None = None
    check_determinism: bool | None = None
    check_jvp: bool | None = None
    check_double_backward: bool | None = None
    check_linearity: bool | None = None
    check_layout: bool | None = None
    check_precision: bool | None = None
    check_variations: bool | None = None
    check_contract: bool | None = None
    absolute_tolerance: float | None = None
    relative_tolerance: float | None = None
    finite_difference_epsilon: float | None = None
    max_finite_difference_elements: int | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    budget_s: float | None = None
    artifact_dir: str | Path | None = None
    artifact_raw_tensors: bool = False

    def __post_init__(self) -> None:
        if self.level not in ("first-order", "full"):
            raise UsageError(f"level={self.level!r}: choose first-order or full")
        if self.vjp_cotangent not in ("random", "ones"):
            raise UsageError(f"vjp_cotangent={self.vjp_cotangent!r}: choose random or ones")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name}={value!r}: needs a number above zero, or None")
        for name in ("absolute_tolerance", "relative_tolerance"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise UsageError(f"{name}={value!r}: needs zero or a positive number, or None")

    @classmethod
    def of(cls, level: Level, keywords: Mapping[str, object]) -> OperatorOptions:
        """Bind keywords.

        Raises:
            UsageError: an unknown keyword (the nearest one is named) or a value out of range.
        """
        refuse_unknown(keywords, [part.name for part in fields(cls) if part.name != "level"])
        return cls(level=level, **keywords)  # type: ignore[arg-type]

    def wants(self, name: str, *, full_only: bool = False) -> bool:
        """Whether the check ``name`` is to run at this level."""
        asked = getattr(self, f"check_{name}")
        if asked is None:
            return self.level == "full" or not full_only
        return bool(asked)

    def demands(self, name: str) -> bool:
        """Whether the user asked for the check ``name`` explicitly."""
        return getattr(self, f"check_{name}") is True


_POSITIVE = ("finite_difference_epsilon", "max_finite_difference_elements", "budget_s")
