"""Contracts about gradients: their norm stays in a range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Unpack

from nabla_core.errors import UsageError
from nabla_core.issue import Evidence, Quantity

from .declaration import Contract, TermArguments, read_terms
from .judgement import Judgement
from .names import ALL, Globs, chosen, read_globs, spelled
from .rules import GRADIENT_NORM_OUTSIDE
from .sizes import each_norm, joint
from .view import InputAbsent, StepView

__all__ = ["Bounds", "GradientContracts", "gradient", "read_bounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A closed range; an end that is ``None`` is open."""

    low: float | None = None
    high: float | None = None

    def holds(self, value: float) -> bool:
        """Whether ``value`` lies inside; NaN never does."""
        above = value >= (-math.inf if self.low is None else self.low)
        return above and value <= (math.inf if self.high is None else self.high)

    def broken_end(self, value: float) -> tuple[str, float | None]:
        """Return how the end that ``value`` broke is called, and where it is."""
        if self.high is not None and not value <= self.high:
            return "limit", self.high
        return "least", self.low

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high:g}"
        return f"at least {self.low:g}" + (f" and at most {self.high:g}" if self.high else "")


def read_bounds(call: str, low: float | None, high: float | None, names: str = "min max") -> Bounds:
    """Return a range.

    Args:
        call: how the person wrote the contract, for messages.
        low: smallest allowed value.
        high: largest allowed value.
        names: how the two arguments are called.

    Raises:
        UsageError: neither is given, one is negative or NaN, or they are the wrong way round.
    """
    first, second = names.split()
    if low is None and high is None:
        raise UsageError(f"{call}: needs {first}, {second} or both")
    for name, value in ((first, low), (second, high)):
        if value is not None and not (isinstance(value, Real) and value >= 0.0):
            raise UsageError(f"{call}: {name} = {value!r}: needs a number of at least 0")
    if low is not None and high is not None and low > high:
        raise UsageError(f"{call}: {first} = {low:g} is above {second} = {high:g}")
    return Bounds(low=low, high=high)


class GradientContracts:
    """``nabla.contracts.gradient``."""

    @staticmethod
    def norm(
        *,
        max: float | None = None,
        min: float | None = None,
        parameters: str | Iterable[str] = "*",
        **terms: Unpack[TermArguments],
    ) -> Contract:
        """Return the contract that the joint norm of gradients stays in a range (CON102).

        Args:
            max: largest allowed L2 norm over the chosen gradients together.
            min: smallest allowed one.
            parameters: glob, or several, for the names of the parameters; all by default.
            **terms: ``name``, ``every``, ``consecutive``, ``severity``, ``raise_on_failure``.

        Raises:
            UsageError: a limit, a glob or a term is wrong.
        """
        bounds = read_bounds("gradient.norm", min, max)
        globs = read_globs("gradient.norm: parameters", parameters)
        whose = "the gradient norm" if globs == ALL else f"the gradient norm of {spelled(globs)}"
        known = read_terms("gradient.norm", terms, f"{whose} is {bounds}")

        def judge(view: StepView) -> Judgement | None:
            return _judge(view, bounds, globs, whose)

        return Contract(
            name=known.name, rule=GRADIENT_NORM_OUTSIDE, begin=lambda: judge, terms=known
        )


gradient = GradientContracts()
"""Contracts about the gradients of a step."""


def _judge(view: StepView, bounds: Bounds, globs: Globs, whose: str) -> Judgement | None:
    known = view.signals.get("grad_norm") if globs == ALL else None
    if known is not None and bounds.holds(known):
        return None
    norms = _norms(view, globs) if known is None else _norms_if_any(view, globs)
    value = joint(list(norms.values())) if norms else known
    if value is None or bounds.holds(value):  # the gradients themselves are more exact
        return None
    end, limit = bounds.broken_end(value)
    evidence: dict[str, Evidence] = {"norm": Quantity(value=value, limit=limit)}
    text = f"{whose} is {value:.4g} ({end} {limit:g})"
    if norms:
        worst = _worst(norms, end)
        evidence |= {
            "parameter": worst,
            "parameter_norm": Quantity(value=norms[worst]),
            "parameters": len(norms),
        }
        largest = "largest" if end == "limit" else "smallest"
        text += f"; {largest} in {worst} with {norms[worst]:.4g}, of {len(norms)} gradients"
    return Judgement(message=text, evidence=evidence, phase="backward")


def _worst(norms: dict[str, float], end: str) -> str:
    def excess(name: str) -> float:
        return math.inf if math.isnan(norms[name]) else norms[name]

    return max(norms, key=excess) if end == "limit" else min(norms, key=excess)


def _norms(view: StepView, globs: Globs) -> dict[str, float]:
    norms = each_norm(chosen(view.gradients, globs, "parameter with a gradient"))
    if not norms:
        raise InputAbsent("no gradient was seen in this step")
    return norms


def _norms_if_any(view: StepView, globs: Globs) -> dict[str, float]:
    """Return the norms; none where the source has only their sum."""
    try:
        return _norms(view, globs)
    except InputAbsent:
        return {}
