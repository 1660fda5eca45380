"""One tensor, looked at now: its range, and the verdict when it is not finite."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nabla_core.issue import Issue, Phase, Quantity
from nabla_core.rule import Rule

from .facts import Place, TensorFault
from .loop.exact import fault_in
from .origin.states import limits_of
from .rules import NON_FINITE_FORWARD, NON_FINITE_INPUT, NON_FINITE_PARAMETER

__all__ = ["Observation", "observed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a look at a tensor showed.

    Attributes:
        name: what the person calls it.
        low: minimum, NaN when it holds one; ``None`` when it has no real values to compare.
        high: maximum, likewise.
        issue: the verdict; ``None`` when every value is finite.
    """

    name: str
    low: float | None = None
    high: float | None = None
    issue: Issue | None = None


def observed(tensor: Tensor, name: str, place: Place | None, step: int | None) -> Observation:
    """Look at a tensor. Reads it from its device.

    Args:
        tensor: any tensor; integers are always finite.
        name: for messages.
        place: where the person asked.
        step: optimizer step, if there is one.
    """
    limits = None if tensor.is_meta else limits_of(tensor)
    fault = None if tensor.is_meta else fault_in(name, tensor)
    return Observation(
        name=name,
        low=None if limits is None else limits[0],
        high=None if limits is None else limits[1],
        issue=None if fault is None else _issue(tensor, fault, place, step),
    )


def _issue(tensor: Tensor, fault: TensorFault, place: Place | None, step: int | None) -> Issue:
    rule, phase = _rule(tensor)
    first = f", first at index {list(fault.index)}" if fault.index else ""
    bad = fault.nan + fault.inf
    return rule.issue(
        f"{bad} of {fault.size} values of {fault.name} ({fault.dtype}) are {fault.kind}, "
        f"limit 0{first}.",
        step=step,
        where=None if place is None else place.location(parameter=fault.name),
        phase=phase,
        bad_values=Quantity(value=bad, unit="values", limit=0),
        dtype=fault.dtype,
    )


def _rule(tensor: Tensor) -> tuple[Rule, Phase]:
    """Something trained, something computed, or something given."""
    if tensor.grad_fn is not None:
        return NON_FINITE_FORWARD, "forward"
    if tensor.requires_grad:
        return NON_FINITE_PARAMETER, "parameter"
    return NON_FINITE_INPUT, "data"
