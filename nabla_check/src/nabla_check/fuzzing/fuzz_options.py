"""What a fuzzing campaign may be asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from nabla_core.errors import UsageError

from ..inputs.layout_names import LAYOUTS, Layout
from ..keywords import refuse_unknown

if TYPE_CHECKING:
    from .properties import Law

__all__ = ["FuzzKeywords", "FuzzOptions"]


class FuzzKeywords(TypedDict, total=False):
    """Keywords of :func:`nabla_check.fuzz`; see :class:`FuzzOptions`."""

    properties: Sequence[Law]
    kwargs: Mapping[str, object]
    executor: Executor | None
    check_backward: bool
    cotangent_layouts: Sequence[Layout]
    absolute_tolerance: float
    relative_tolerance: float
    budget_s: float | None
    max_shrink_calls: int
    artifact_dir: str | Path | None
    artifact_raw_tensors: bool
    show_progress: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzOptions:
    """Options of one campaign.

    Attributes:
        properties: laws by :func:`nabla_check.property` and :func:`nabla_check.equivalent`.
        kwargs: keyword arguments of the operator.
        executor: runs trials, e.g. a ``ProcessPoolExecutor``; by default this process does. It is
            not shut down.
        check_backward: compare gradients too.
        cotangent_layouts: memory layouts of the incoming gradient to try.
        absolute_tolerance: allowed besides rounding, in the unit of the result.
        relative_tolerance: allowed besides rounding, relative to the largest expected element.
        budget_s: seconds after which no further trial starts.
        max_shrink_calls: bound on the cases tried while shrinking.
        artifact_dir: folder for the evidence of a failure.
        artifact_raw_tensors: store the failing inputs as well.
        show_progress: a bar on stderr; by default only on a terminal.
    """

    properties: Sequence[Law] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    executor: Executor | None = None
    check_backward: bool = True
    cotangent_layouts: Sequence[Layout] = LAYOUTS
    absolute_tolerance: float = 0.0
    relative_tolerance: float = 0.0
    budget_s: float | None = None
    max_shrink_calls: int = 200
    artifact_dir: str | Path | None = None
    artifact_raw_tensors: bool = False
    show_progress: bool | None = None

    def __post_init__(self) -> None:
        for name in ("absolute_tolerance", "relative_tolerance", "max_shrink_calls"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name}={getattr(self, name)!r}: needs zero or a positive number")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UsageError(f"budget_s={self.budget_s!r}: needs a number above zero, or None")
        if self.executor is not None and not hasattr(self.executor, "submit"):
            raise UsageError(
                f"executor={type(self.executor).__name__}: give a concurrent.futures executor, "
                "e.g. ProcessPoolExecutor(4)"
            )
        for name in self.cotangent_layouts:
            if name not in LAYOUTS:
                known = ", ".join(LAYOUTS)
                raise UsageError(f"cotangent_layouts holds {name!r}: choose from {known}")
        for law in self.properties:
            if not hasattr(law, "violation"):
                raise UsageError(
                    f"properties holds a {type(law).__name__}: make it with "
                    "nabla.check.property(name, predicate) or nabla.check.equivalent(name, …)"
                )

    @classmethod
    def of(cls, keywords: Mapping[str, object]) -> FuzzOptions:
        """Bind keywords.

        Raises:
            UsageError: an unknown keyword (the nearest one is named) or a value out of range.
        """
        refuse_unknown(keywords, [part.name for part in fields(cls)])
        return cls(**keywords)  # type: ignore[arg-type]
