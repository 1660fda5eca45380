"""Contracts about parameters: how far a step moves them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from nabla_core.issue import Quantity

from .declaration import Contract, TermArguments, read_terms
from .gradient_contracts import Bounds, read_bounds
from .judgement import Judgement
from .names import ALL, Globs, chosen, read_globs, spelled
from .rules import PARAMETER_CHANGE_OUTSIDE
from .sizes import each_norm
from .view import InputAbsent, StepView

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ParameterContracts", "parameter"]


class ParameterContracts:
    """``nabla.contracts.parameter``."""

    @staticmethod
    def change(
        *,
        min_relative: float | None = None,
        max_relative: float | None = None,
        parameters: str | Iterable[str] = "*",
        **terms: Unpack[TermArguments],
    ) -> Contract:
        """Return the contract that each parameter moves by a share of its norm (CON104).

        A step that is looked at copies the parameters once; ``every`` makes that rare.

        Args:
            min_relative: least change of each parameter by one step, over its norm before it.
            max_relative: greatest one.
            parameters: glob, or several, for the names of the parameters; all by default.
            **terms: ``name``, ``every``, ``consecutive``, ``severity``, ``raise_on_failure``.

        Raises:
            UsageError: a limit, a glob or a term is wrong.
        """
        call = "parameter.change"
        bounds = read_bounds(call, min_relative, max_relative, "min_relative max_relative")
        globs = read_globs(f"{call}: parameters", parameters)
        whose = "each parameter" if globs == ALL else spelled(globs)
        known = read_terms(call, terms, f"the relative change of {whose} is {bounds}")

        def judge(view: StepView) -> Judgement | None:
            return _judge(view, bounds, globs)

        return Contract(
            name=known.name,
            rule=PARAMETER_CHANGE_OUTSIDE,
            begin=lambda: judge,
            needs=frozenset({"updates"}),
            terms=known,
            parameters=globs,
            only_unusual=True,
        )


parameter = ParameterContracts()
"""Contracts about parameters."""


def _judge(view: StepView, bounds: Bounds, globs: Globs) -> Judgement | None:
    ratios = _ratios(view, chosen(view.updates, globs, "parameter of the optimizer"))
    broken = {name: ratio for name, ratio in ratios.items() if not bounds.holds(ratio)}
    if not broken:
        return None
    worst = max(broken, key=lambda name: _distance(broken[name], bounds))
    end, limit = bounds.broken_end(broken[worst])
    return Judgement(
        message=f"the step changed {worst} by {broken[worst]:.3g} of its norm ({end} {limit:g}); "
        f"{len(broken)} of {len(ratios)} parameters are outside",
        evidence={
            "parameter": worst,
            "relative_change": Quantity(value=broken[worst], limit=limit),
            "parameters_outside": len(broken),
            "parameters": len(ratios),
        },
        phase="optimizer",
    )


def _ratios(view: StepView, updates: Mapping[str, Tensor]) -> dict[str, float]:
    """Change over the norm before it; parameters of norm zero have none."""
    now = view.parameters
    changes = each_norm(updates)
    before = each_norm({name: now[name] - updates[name] for name in updates})
    ratios = {
        name: change / before[name] for name, change in changes.items() if before[name] != 0.0
    }
    if not ratios:
        raise InputAbsent("no parameter has a norm to compare its change with")
    return ratios


def _distance(ratio: float, bounds: Bounds) -> float:
    """How far outside a ratio is, as a factor; NaN is the farthest."""
    end, limit = bounds.broken_end(ratio)
    if math.isnan(ratio):
        return math.inf
    if end == "limit":
        return ratio / limit if limit else math.inf
    return (limit or 0.0) / ratio if ratio else math.inf
