"""GEO1xx: what the gradients of several losses say together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.severity import Severity

from .gram_facts import GramFacts
from .opposition import is_clamped, is_fit, opposition_of
from .options import TraceOptions
from .rules.losses import (
    LOSS_CANCELLATION,
    LOSS_CONFLICT,
    LOSS_DEAD,
    LOSS_DOMINANCE,
    LOSS_WORSENED,
)

__all__ = ["dead_losses", "loss_issues", "worsened_losses"]

_WORSE = 0.01
_PAID = 0.5
_ALONE = 0.5
_SIMILAR = 10.0


def loss_issues(
    losses: Mapping[str, Tensor], gram: Tensor, options: TraceOptions, where: str
) -> Iterator[Issue]:
    """Yield conflict, cancellation and dominance, as severe as their cause is certain.

    Args:
        losses: name → scalar with its graph.
        gram: inner products ``[K, K]`` of their weighted gradients at all shared parameters.
        options: limits.
        where: what the gradients were taken at.
    """
    facts = GramFacts(gram)
    norms = facts.norms.tolist()
    live = [index for index, norm in enumerate(norms) if norm > 0]
    if len(live) < 2:
        return
    names = tuple(losses)
    conflicts = list(_conflicts(losses, facts, options, where))
    yield from conflicts
    square, sum_square = sum(norm**2 for norm in norms), facts.total_norm**2
    lost = facts.cancellation
    if lost > options.cancellation and sum_square < _ALONE * square:
        yield LOSS_CANCELLATION.issue(
            f"Of the gradients' lengths {lost:.0%} are lost in their sum at {where}, limit "
            f"{options.cancellation:.0%}.",
            phase="backward",
            severity=max((issue.severity for issue in conflicts), default=Severity.INFO),
            cancellation=Quantity(value=lost, limit=options.cancellation),
            sum_length=facts.total_norm,
        )
    largest = max(live, key=lambda index: norms[index])
    share = norms[largest] / sum(norms)
    if share > options.dominance:
        yield LOSS_DOMINANCE.issue(
            f"Loss {names[largest]} supplies {share:.1%} of the gradient length at {where}, limit "
            f"{options.dominance:.0%}.",
            phase="backward",
            severity=None if _by_scale(losses, norms, largest) else Severity.INFO,
            share=Quantity(value=share, limit=options.dominance),
            loss=names[largest],
        )


def _conflicts(
    losses: Mapping[str, Tensor], facts: GramFacts, options: TraceOptions, where: str
) -> Iterator[Issue]:
    norms, cosines, names = facts.norms.tolist(), facts.cosines, list(losses)
    for first in range(len(names)):
        for second in range(first):
            cosine = float(cosines[first, second])
            low, high = sorted((norms[first], norms[second]))
            if not cosine < options.conflict_cosine or high > options.conflict_ratio * low:
                continue
            pair = f"{names[second]} and {names[first]}"
            why = opposition_of(losses[names[second]], losses[names[first]], cosine, high / low)
            yield LOSS_CONFLICT.issue(
                f"The gradients of {pair} have the cosine {cosine:.2f} at {where}, limit "
                f"{options.conflict_cosine:.2f}; {why.value}.",
                where=Location(op=f"losses {pair}"),
                phase="backward",
                severity=why.severity,
                cosine=Quantity(value=cosine, limit=options.conflict_cosine),
                length_ratio=Quantity(value=high / low, limit=options.conflict_ratio),
            )


def _by_scale(losses: Mapping[str, Tensor], norms: Sequence[float], largest: int) -> bool:
    """Whether all is compared with targets, and only the factors make the difference.

    A small penalty is small on purpose, and a loss at its minimum has a small gradient for its
    value; what was multiplied has both in the same proportion.
    """
    if not all(map(is_fit, losses.values())):
        return False
    values = [abs(float(loss.detach())) for loss in losses.values()]
    pairs = zip(norms, values, strict=True)
    relative = [norm / value if value else math.inf for norm, value in pairs]
    return all(relative[largest] <= _SIMILAR * one for one in relative)


def dead_losses(
    losses: Mapping[str, Tensor], norms: Mapping[str, float], where: str
) -> Iterator[Issue]:
    """Yield losses without any gradient.

    Args:
        losses: name → scalar.
        norms: name → length of its gradient.
        where: what the gradients were taken at.
    """
    alive = any(norm > 0 for norm in norms.values())
    for name, loss in losses.items():
        if norms[name] > 0:
            continue
        cut = not loss.requires_grad
        why = "it does not require grad" if cut else f"its gradient at {where} is exactly zero"
        value = float(loss.detach())
        rests = value == 0.0 or (not cut and is_clamped(loss))
        if rests:
            why += ", as of a loss that is satisfied or not yet switched on"
        yield LOSS_DEAD.issue(
            f"Loss {name} = {value:.4g} trains nothing: {why}, length 0, limit above 0.",
            where=Location(op=f"loss {name}"),
            phase="loss",
            severity=Severity.INFO if rests else None if cut and alive else Severity.LOW,
            length=Quantity(value=norms[name], limit=0.0),
            value=value,
        )


def worsened_losses(
    before: Mapping[str, float], after: Mapping[str, float], weights: Mapping[str, float]
) -> Iterator[Issue]:
    """Yield losses that rose through a step that lowered the total.

    Args:
        before: name → loss on a batch.
        after: the same after the step.
        weights: of the losses in the total.
    """
    change = {name: weights[name] * (after[name] - before[name]) for name in before}
    total = sum(change.values())
    if not total < 0:
        return
    gained = -sum(part for part in change.values() if part < 0)
    for name, rise in change.items():
        scale = abs(weights[name] * before[name])
        ratio = rise / scale if scale else math.inf
        if rise > 0 and ratio > _WORSE and rise > 0.1 * -total:
            yield LOSS_WORSENED.issue(
                f"Loss {name} rose by {ratio:.1%} through the step that lowered the total by "
                f"{-total:.4g}, limit {_WORSE:.0%}.",
                where=Location(op=f"loss {name}"),
                phase="optimizer",
                severity=None if rise > _PAID * gained else Severity.INFO,
                rise=Quantity(value=ratio, limit=_WORSE),
                total_change=total,
            )
