"""AUD408: targets that a loss or the last activation of a model has no use for."""

from __future__ import annotations

from collections.abc import Iterator

from nabla_core.issue import Quantity
from nabla_core.severity import Severity
from nabla_guard.families.losses import LossInput
from nabla_guard.families.signed_targets import SIGNED_LOSSES

from .loss_verdict import Verdict, verdict
from .rules.loss import LABELS_OUT_OF_RANGE
from .streak import CONSECUTIVE

__all__ = ["judge_targets"]


def judge_targets(found: LossInput) -> Iterator[Verdict]:
    """Yield the fault of targets that are no signs, or that no output can equal."""
    if found.loss in SIGNED_LOSSES:
        yield _unsigned(found)
    elif found.loss == "Bounded" and 2 * found.beyond > found.labels:
        yield _unreachable(found)


def _unsigned(found: LossInput) -> Verdict:
    message = (
        f"{found.beyond} of {found.labels} targets of {found.loss} are 0 and the others 1 "
        "(limit 0): it takes 1 and -1, and a target of 0 stands for neither."
    )
    zeros = Quantity(value=found.beyond, unit="targets", limit=0)
    return CONSECUTIVE, verdict(
        LABELS_OUT_OF_RANGE, found, message, Severity.MEDIUM, {"zeros": zeros}
    )


def _unreachable(found: LossInput) -> Verdict:
    maker = found.feeders[0]
    message = (
        f"{found.beyond} of {found.labels} targets lie outside {maker.low:g} to {maker.high:g} "
        f"(limit: half of them; they reach from {found.low:.4g} to {found.high:.4g}), and the "
        f"prediction is the output of a {maker.op.lower()}, which cannot."
    )
    beyond = Quantity(value=found.beyond, unit="targets", limit=found.labels / 2)
    return CONSECUTIVE, verdict(
        LABELS_OUT_OF_RANGE, found, message, Severity.MEDIUM, {"beyond": beyond}
    )
