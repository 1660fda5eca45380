"""torch's amax and amin per group count a tie with the element that they were told to leave out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nabla_core.issue import Issue, Location

from ..examination import Baseline, Examination
from ..rules import KINK
from ..truth.authorship import nodes_of
from ..truth.numerical import nearby, passes_at_a_glance, point_at

__all__ = ["beside_ties", "halves_excluded_ties", "is_tie_with_excluded", "tie_note"]

_NODES = ("ScatterReduceBackward", "IndexReduceBackward")
_EXTREMES = ("amax", "amin")


def halves_excluded_ties(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether a node behind ``outputs`` is an amax or amin with ``include_self=False``.

    Measured with torch 2.13: where the result equals the element of ``self`` that is left out, the
    derivative shares the gradient with it, although the result does not depend on it.
    """
    try:
        nodes = list(nodes_of(outputs))
    except RuntimeError:  # a later call has written into an output, so torch gives no graph
        return False
    return any(
        node.name().startswith(_NODES)
        and getattr(node, "_saved_reduce", None) in _EXTREMES
        and getattr(node, "_saved_include_self", None) is False
        for node in nodes
    )


def beside_ties(exam: Examination, point: Baseline) -> Baseline:
    """Call the candidate at a nearby generic point, where nothing ties.

    Raises:
        OperatorRaised: the operator raised.
    """
    moved = point.operands.with_values(nearby(exam, point.operands.originals()))
    return point_at(exam, moved, stage="beside ties")


def is_tie_with_excluded(exam: Examination, point: Baseline) -> bool:
    """Whether the gradient at ``point`` may be wrong by torch's formula alone: beside it is right.

    Raises:
        OperatorRaised: the operator raised beside the point.
    """
    if not halves_excluded_ties(point.outputs.differentiable):
        return False
    return passes_at_a_glance(exam, beside_ties(exam, point))


def tie_note(exam: Examination) -> Issue:
    """Say that the given input holds such a tie."""
    return KINK.issue(
        "The result equals an element of self that include_self=False leaves out, and torch's own "
        "formula shares the gradient with it; it was judged at a nearby point, and is right there.",
        where=Location(op=exam.candidate.callee.name),
        phase="backward",
    )
