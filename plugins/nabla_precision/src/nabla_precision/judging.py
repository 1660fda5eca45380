"""Verdicts from the measurements of an audit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nabla_core.issue import Evidence, Issue, Location, Quantity
from nabla_core.severity import Severity

from .result import Measurement, ModulePrecision
from .rules import GRADIENT_UNDERFLOW, LOCAL_ERROR, LOSS_SCALING_NEEDED, OVERFLOW

__all__ = ["judge"]

_LOST_SHARE = 0.05

Rows = Mapping[str, Measurement]


def judge(
    modules: Sequence[ModulePrecision],
    loss_scales: Mapping[str, float],
    own_dtypes: frozenset[str] = frozenset(),
) -> list[Issue]:
    """Return the issues of an audit.

    Args:
        modules: what was measured.
        loss_scales: largest loss scale without an overflow, by dtype.
        own_dtypes: dtypes of the model's parameters: what is wrong in those is wrong today.
    """
    issues: list[Issue] = []
    for module in modules:
        issues += _of_module(module, own_dtypes)
    return [*issues, *_of_model(modules, loss_scales)]


def _of_module(module: ModulePrecision, own_dtypes: frozenset[str]) -> Iterator[Issue]:
    rows = module.measurements
    over = {name: found for name, found in rows.items() if found.overflows}
    worse = {n: f for n, f in rows.items() if f.worst > f.limit and not f.overflows}
    lost = {n: f for n, f in rows.items() if f.lost_gradient > f.limit and n not in over}
    where = Location(module=module.path, op="own code" if module.own_code else None)
    for rule, found, text in (
        (OVERFLOW, over, _overflow_text),
        (LOCAL_ERROR, worse, _error_text),
        (GRADIENT_UNDERFLOW, lost, _lost_text),
    ):
        if found:
            said = "; ".join(text(name, row) for name, row in found.items())
            issue = rule.issue(
                f"{module.label[0].upper()}{module.label[1:]}: {said}."
                if module.own_code
                else f"{module.label}: {said}.",
                where=where,
                severity=Severity.HIGH if own_dtypes & found.keys() else None,
            )
            yield replace(issue, evidence=_evidence(found))


def _of_model(
    modules: Sequence[ModulePrecision], loss_scales: Mapping[str, float]
) -> Iterator[Issue]:
    for name, scale in loss_scales.items():
        shares = {
            module.label: found.gradient.lost_share
            for module in modules
            if (found := module.measurements.get(name)) and found.gradient is not None
        }
        small = {label: share for label, share in shares.items() if share > _LOST_SHARE}
        if small and scale > 1.0:
            worst = max(small, key=lambda label: small[label])
            yield LOSS_SCALING_NEEDED.issue(
                f"In {name}, the gradients of {len(small)} of {len(shares)} modules lose digits "
                f"or become zero: {small[worst]:.0%} of those at {worst} (limit "
                f"{_LOST_SHARE:.0%}); a loss scale of 2^{math.log2(scale):.0f} still fits.",
                where=Location(op=name),
                phase="backward",
                modules=len(small),
                lost_share=Quantity(value=small[worst], limit=_LOST_SHARE),
                largest_scale=Quantity(value=scale),
                dtype=name,
            )


def _overflow_text(name: str, found: Measurement) -> str:
    if found.output.overflow_share > 0.0:
        return f"{found.output.overflow_share:.2%} of its outputs leave the range of {name}"
    return f"a number on the way to its output leaves the range of {name}"


def _error_text(name: str, found: Measurement) -> str:
    parts = (
        ("its output", found.local_error),
        ("the gradient that it passes back", found.grad_input_error),
        ("the gradient of its parameters", found.grad_weight_error),
    )
    what, error = max(parts, key=lambda part: -1.0 if math.isnan(part[1]) else part[1])
    return (
        f"in {name}, {what} has a relative error of {error:.2g} by itself (limit {found.limit:.2g})"
    )


def _lost_text(name: str, found: Measurement) -> str:
    return (
        f"in {name}, its gradient loses {found.lost_gradient:.2g} of its norm under every loss "
        f"scale (limit {found.limit:.2g})"
    )


def _evidence(rows: Rows) -> dict[str, Evidence]:
    evidence: dict[str, Evidence] = {"dtypes": ", ".join(rows)}
    for name, found in rows.items():
        for key, value in (
            ("local_error", found.local_error),
            ("grad_input_error", found.grad_input_error),
            ("grad_weight_error", found.grad_weight_error),
        ):
            if not math.isnan(value):
                evidence[f"{key}_{name}"] = Quantity(value=value, limit=found.limit)
    return evidence
