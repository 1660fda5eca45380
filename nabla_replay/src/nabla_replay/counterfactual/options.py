"""What a person may say about a counterfactual replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypedDict

from nabla_core.errors import UsageError

__all__ = ["WhatIfArguments", "WhatIfOptions", "what_if_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    """Bounds of a counterfactual replay.

    Attributes:
        until: last step to execute, as the run counts; by default 20 steps after the first change
            acts, or the last that was recorded.
        rank: whose record.
        max_steps: no more steps than these are executed for one trial.
        budget_s: changes for which there would be no time left are not tried.
    """

    until: int | None = None
    rank: int = 0
    max_steps: int = 2_000
    budget_s: float = 120.0

    def __post_init__(self) -> None:
        if self.max_steps < 1 or not self.budget_s > 0.0:
            raise UsageError(
                f"what_if(max_steps={self.max_steps}, budget_s={self.budget_s}): needs positive "
                "bounds"
            )


class WhatIfArguments(TypedDict, total=False):
    """Keyword arguments of :func:`nabla_replay.what_if`: :class:`WhatIfOptions`."""

    until: int | None
    rank: int
    max_steps: int
    budget_s: float


def what_if_options(given: Mapping[str, object]) -> WhatIfOptions:
    """Return the options.

    Raises:
        UsageError: one is unknown or out of range.
    """
    names = [field.name for field in fields(WhatIfOptions)]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UsageError(
            f"what_if({unknown[0]}=...): unknown option; the options are {', '.join(names)}"
        )
    return WhatIfOptions(**given)  # type: ignore[arg-type]
