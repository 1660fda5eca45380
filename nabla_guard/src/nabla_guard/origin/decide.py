"""Which birth is to blame: a pure choice over what the re-execution found.

Source: the deciding rules of the project's notes on guarding live loops: constants are no births; a
finite loss with bad gradients means a birth in backward; an infinity that arithmetic swallowed is
an overflow in the forward pass; what was there before the step comes before what the step made.
"""

from __future__ import annotations

from collections.abc import Iterable

from .findings import Birth, Findings

__all__ = ["blamed", "consequences"]

_MAX_CONSEQUENCES = 5


def blamed(
    findings: Findings, usual: frozenset[str] = frozenset(), *, odd_inputs: bool = False
) -> Birth | None:
    """Return the birth from which the bad loss, else the bad gradients, descend.

    Args:
        findings: what was found.
        usual: inputs that also held such values in steps that went well.
        odd_inputs: an input holds such values although its like did not in steps that went well:
            then even a constant is no mask if it was put there before the model.

    Returns:
        ``None`` when nothing was found to descend from.
    """
    if findings.loss is not None:
        birth = _first(findings.of(findings.loss), usual, odd_inputs)
        return None if birth is None else _source_of(findings, birth)
    pool = findings.of(findings.gradients)
    given = [birth for birth in pool if odd_inputs and _is_bad_data(birth, usual)]
    if given:
        return given[0]  # such as an infinity that a bounded activation made finite
    backward = [birth for birth in pool if birth.phase == "backward"]
    if backward and not findings.loss_seen:
        backward = [birth for birth in pool if not birth.selected_away][:1]
    birth = backward[0] if backward else _first(pool, usual, odd_inputs)
    return None if birth is None else _source_of(findings, birth)


def _is_bad_data(birth: Birth, usual: frozenset[str]) -> bool:
    """Whether it came with the data, unlike in steps before, and the program did not mask it."""
    if birth.phase != "data" or birth.source == "constant" or birth.selected_away:
        return False
    return f"{birth.model} {birth.op}" not in usual


def _source_of(findings: Findings, birth: Birth) -> Birth:
    """The overflow behind a birth, where arithmetic had made a finite number of its infinity."""
    swallowed = [
        findings.births[number]
        for number in birth.fed_by
        if not findings.births[number].selected_away
    ]
    return min(swallowed, key=lambda found: found.number, default=birth)


def consequences(findings: Findings, cause: Birth) -> list[Birth]:
    """Return later births that descend from the one to blame, the first few."""
    later = [birth for birth in findings.births if cause.number in birth.parents]
    return later[:_MAX_CONSEQUENCES]


def _first(pool: Iterable[Birth], usual: frozenset[str], odd_inputs: bool) -> Birth | None:
    """The earliest birth that is not meant to be, else the earliest one at all."""
    pool = list(pool)
    unmeant = [birth for birth in pool if odd_inputs and birth.phase == "data"]
    born = [birth for birth in pool if birth.source != "constant" or birth in unmeant]
    if born and born[0].source == "unseen":
        return None
    unusual = [birth for birth in born if f"{birth.model} {birth.op}" not in usual]
    telling = [birth for birth in unusual if not birth.is_mask or birth in unmeant]
    first = next(iter(telling or unusual or born or pool), None)
    if first is None or not first.of_masks:
        return first
    made_of_it = (birth for birth in telling if birth.is_nan and first.number in birth.parents)
    return next(made_of_it, first)  # such as inf - inf: the infinity alone was still meant
