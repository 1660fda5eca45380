"""Contracts about what modules return: finite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Unpack

from nabla_core.issue import Quantity

from .declaration import Contract, TermArguments, read_terms
from .judgement import Judgement
from .names import ALL, Globs, chosen, read_globs, spelled
from .rules import TENSOR_NOT_FINITE
from .view import Range, StepView

__all__ = ["TensorContracts", "tensor"]


class TensorContracts:
    """``nabla.contracts.tensor``."""

    @staticmethod
    def finite(*, module: str | Iterable[str] = "*", **terms: Unpack[TermArguments]) -> Contract:
        """Return the contract that modules return finite numbers (CON103).

        Args:
            module: glob, or several, for the paths of leaf modules; all by default.
            **terms: ``name``, ``every``, ``consecutive``, ``severity``, ``raise_on_failure``.

        Raises:
            UsageError: a glob or a term is wrong.
        """
        globs = read_globs("tensor.finite: module", module)
        where = "every module" if globs == ALL else spelled(globs)
        known = read_terms("tensor.finite", terms, f"outputs of {where} are finite")

        def judge(view: StepView) -> Judgement | None:
            return _judge(view, globs)

        return Contract(
            name=known.name,
            rule=TENSOR_NOT_FINITE,
            begin=lambda: judge,
            needs=frozenset({"activations"}),
            terms=known,
        )


tensor = TensorContracts()
"""Contracts about tensors that modules return."""


def _judge(view: StepView, globs: Globs) -> Judgement | None:
    ranges = view.activations
    if globs == ALL and all(found.is_finite for found in ranges.values()):
        return None
    ranges = chosen(ranges, globs, "module that ran in this step")
    bad = [path for path, found in ranges.items() if not found.is_finite]
    if not bad:
        return None
    first = bad[0]  # ranges are in the order in which the modules were first called
    more = f", and in {len(bad) - 1} modules after it" if len(bad) > 1 else ""
    return Judgement(
        message=f"the output of module {first} {_what(ranges[first])}{more} "
        f"({len(ranges)} modules looked at)",
        evidence={
            "module": first,
            "low": Quantity(value=ranges[first].low),
            "high": Quantity(value=ranges[first].high),
            "modules": len(bad),
        },
        phase="forward",
    )


def _what(found: Range) -> str:
    if math.isnan(found.low) or math.isnan(found.high):
        return "holds NaN"
    return f"reaches {found.low:g}" if math.isinf(found.low) else f"reaches {found.high:g}"
