"""AUD401 to 405, 408 and 409: what reaches the losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from nabla_core.issue import Evidence, Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.losses import Feeder, LossInput, LossWatch

from .loss_verdict import Verdict, verdict
from .rules.gradient import ZERO_GRADIENT_BY_CONSTRUCTION
from .rules.loss import (
    ALL_TARGETS_IGNORED,
    BROADCAST_TARGET,
    LABELS_OUT_OF_RANGE,
    PROBABILITIES_EXPECTED,
    SIGMOID_BEFORE_LOGITS_LOSS,
    SOFTMAX_OVER_BATCH_AXIS,
    SOFTMAX_TWICE,
)
from .streak import CONSECUTIVE
from .targets import judge_targets

__all__ = ["LossDetector", "judge_input"]

_LINEAR = frozenset({"Addmm", "Convolution", "Mm", "Bmm"})
_SCALINGS = frozenset({"Div", "Mul"})
_ELEMENTWISE = frozenset({"BinaryCrossEntropy", "HuberLoss", "MseLoss", "SmoothL1Loss"})
_ACTIVATIONS = ("Softmax", "Sigmoid")
_SIGMOIDS = ["Sigmoid", "Sigmoid"]
_TWICE = 2
_ROUNDING = 1e-4
_BLURRED = 1.5


class LossDetector:
    """Judges every loss of the graphs that were looked at."""

    rules = (
        SOFTMAX_TWICE,
        SIGMOID_BEFORE_LOGITS_LOSS,
        PROBABILITIES_EXPECTED,
        BROADCAST_TARGET,
        SOFTMAX_OVER_BATCH_AXIS,
        LABELS_OUT_OF_RANGE,
        ALL_TARGETS_IGNORED,
        ZERO_GRADIENT_BY_CONSTRUCTION,
    )
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._losses = facts.gather(LossWatch).facts
        self._seen: Counter[str] = Counter()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the losses that the step was made from."""
        if not self._losses.seen:
            return ()
        return list(self._judge(record.step))

    def _judge(self, step: int) -> Iterator[Issue]:
        for found in self._losses.seen:
            for needed, make in judge_input(found):
                issue = make(step)
                self._seen[issue.fingerprint] += 1
                if self._seen[issue.fingerprint] >= needed:
                    yield issue


def judge_input(found: LossInput) -> Iterator[Verdict]:
    """Yield the faults of one loss."""
    name, feeders = found.loss, found.feeders
    first = feeders[0] if feeders else None
    if name.startswith("NllLoss"):
        yield from _likelihood(found, feeders)
    elif name in ("LogSoftmax", "Logsumexp") and first is not None and first.op in _ACTIVATIONS:
        yield from _twice(found, first, certain=False)
    elif name in ("BinaryCrossEntropyWithLogits", "LogSigmoid") and first is not None:
        yield from _logits(found, first)
    elif name == "KlDiv" and first is not None:
        yield from _divergence(found, first)
    elif name == "Pick" and first is not None:
        yield from _picked(found, feeders)
    elif name == "CtcLoss":
        yield from _alignment(found, first)
    elif name in _ELEMENTWISE and first is not None and _competes_in_batch(found, first):
        yield _wrong_axis(found, first, 1)
    if name.startswith("BinaryCrossEntropy"):
        yield from _range(found)
    if name == "BinaryCrossEntropy" and [feeder.op for feeder in feeders[:2]] == _SIGMOIDS:
        yield _sigmoid_twice(found, feeders[0])
    yield from _broadcast(found)
    yield from judge_targets(found)
    yield from _self_penalty(found)


def _self_penalty(found: LossInput) -> Iterator[Verdict]:
    if found.loss == "SelfPenalty":
        yield (
            _TWICE,
            verdict(
                ZERO_GRADIENT_BY_CONSTRUCTION,
                found,
                f"A term of the loss is the size of the difference of a parameter of shape "
                f"{found.shape} with itself: it is 0 and has no gradient (limit: another tensor).",
                Severity.MEDIUM,
                {"difference": 0.0},
            ),
        )


def _alignment(found: LossInput, first: Feeder | None) -> Iterator[Verdict]:
    """A CTC loss takes log-probabilities, and labels none of which is the blank."""
    high = found.input_high
    if high is not None and high > _ROUNDING:
        made = f"the output of a {first.op.lower()}" if first is not None else "values"
        yield _not_log(found, f"{made}, up to {high:.3g}", first)
    if found.blanks:
        yield (
            _TWICE,
            verdict(
                LABELS_OUT_OF_RANGE,
                found,
                f"{found.blanks} of {found.labels} targets of a CTC loss are the blank (limit 0), "
                "which stands for no label.",
                Severity.HIGH,
                {"blanks": Quantity(value=found.blanks, unit="targets", limit=0)},
            ),
        )


def _sigmoid_twice(found: LossInput, first: Feeder) -> Verdict:
    return 1, verdict(
        SIGMOID_BEFORE_LOGITS_LOSS,
        found,
        f"binary_cross_entropy received the sigmoid of a sigmoid{_values_of(first)}: of values "
        "between 0 and 1 the second one makes at least 0.5.",
        Severity.HIGH,
        {"activation": "sigmoid"},
    )


def _competes_in_batch(found: LossInput, first: Feeder) -> bool:
    return first.op == "Softmax" and found.one_hot and first.direct and first.axis == 0


def _divergence(found: LossInput, first: Feeder) -> Iterator[Verdict]:
    high = found.input_high
    if high is None or high <= _ROUNDING:
        return
    if first.op in ("Softmax", "Sigmoid"):
        yield _not_log(found, f"the output of a {first.op.lower()}, up to {high:.3g}", first)
    scored = found.feeders[1] if first.op in _SCALINGS and len(found.feeders) > 1 else first
    if scored.op in _LINEAR:
        yield _not_log(found, f"the scores of a {scored.op.lower()}, up to {high:.3g}", scored)


def _picked(found: LossInput, feeders: tuple[Feeder, ...]) -> Iterator[Verdict]:
    """Log-probabilities of which one is picked in each row must be normalised along the rows."""
    softmax = feeders[0]
    if softmax.op == "Log" and len(feeders) > 1:
        softmax = feeders[1]
    elif softmax.op != "LogSoftmax":
        return
    normalised = softmax.op in ("LogSoftmax", "Softmax") and softmax.shape == found.shape
    axis = found.class_axis
    if normalised and axis is not None and softmax.axis is not None and softmax.axis != axis:
        yield _wrong_axis(found, softmax, axis)


def _likelihood(found: LossInput, feeders: tuple[Feeder, ...]) -> Iterator[Verdict]:
    if found.labels and found.ignored == found.labels:
        yield _ignored(found)
    if not feeders:
        return
    first, second = feeders[0], feeders[1] if len(feeders) > 1 else None
    if first.op in ("Softmax", "Sigmoid"):
        yield _not_log(found, f"the output of a {first.op.lower()}, between 0 and 1", first)
    elif _is_scored(found, first):
        text = f"the scores of a {first.op.lower()}, up to {found.input_high:.3g}"
        yield _not_log(found, text, first)
    softmax = second if first.op == "Log" and second and second.op == "Softmax" else first
    if softmax.op in ("LogSoftmax", "Softmax") and softmax.axis is not None:
        axis = _class_axis(found, softmax)
        if axis is not None and first.direct and softmax.axis != axis:
            yield _wrong_axis(found, softmax, axis)
    if first.op == "LogSoftmax" and second is not None and second.op == "Softmax":
        axis = _class_axis(found, second)
        if axis is not None and second.direct and second.axis not in (None, axis):
            yield _wrong_axis(found, second, axis)
    if first.op == "LogSoftmax" and second is not None and second.op in ("Softmax", "Sigmoid"):
        yield from _twice(found, second, certain=second.op == "Softmax")


def _is_scored(found: LossInput, first: Feeder) -> bool:
    """Whether raw scores are given, and nothing beside the loss normalises them."""
    high = found.input_high
    return first.op in _LINEAR and high is not None and high > 0 and not found.partition


def _class_axis(found: LossInput, softmax: Feeder) -> int | None:
    """A negative log-likelihood has its classes on axis 1, or on axis 0 without a batch."""
    if softmax.shape != found.shape or not found.shape:
        return None
    return 1 if len(found.shape) > 1 else 0


def _twice(found: LossInput, feeder: Feeder, *, certain: bool) -> Iterator[Verdict]:
    classes = found.shape[1] if len(found.shape) > 1 else found.shape[-1] if found.shape else 0
    along = feeder.shape[feeder.axis] if feeder.axis is not None and feeder.shape else classes
    if feeder.op == "Softmax" and along != classes:
        return  # a softmax over another axis: no probabilities of classes
    floor = math.log(math.e + classes - 1) - 1 if classes > 1 else 0.0
    values = _values_of(feeder)
    evidence: dict[str, Evidence] = {"classes": classes, "loss_floor": Quantity(value=floor)}
    yield (
        1,
        verdict(
            SOFTMAX_TWICE,
            found,
            f"The input of log_softmax is the output of a {feeder.op.lower()}{values}: with "
            f"{classes} classes the loss cannot fall below {floor:.3f}.",
            Severity.HIGH if certain else Severity.MEDIUM,
            evidence,
        ),
    )


def _logits(found: LossInput, feeder: Feeder) -> Iterator[Verdict]:
    if feeder.op not in ("Sigmoid", "Softmax"):
        return
    certain = found.loss == "BinaryCrossEntropyWithLogits"
    loss = "binary_cross_entropy_with_logits" if certain else "logsigmoid"
    yield (
        1,
        verdict(
            SIGMOID_BEFORE_LOGITS_LOSS,
            found,
            f"{loss} received the output of a {feeder.op.lower()}{_values_of(feeder)}; its own "
            "sigmoid makes at least 0.5 of it.",
            Severity.HIGH if certain else Severity.MEDIUM,
            {"activation": feeder.op.lower()},
        ),
    )


def _not_log(found: LossInput, text: str, feeder: Feeder | None) -> Verdict:
    loss = {"KlDiv": "kl_div", "CtcLoss": "ctc_loss"}.get(found.loss, "nll_loss")
    return 1, verdict(
        PROBABILITIES_EXPECTED,
        found,
        f"{loss} received {text}; it expects log-probabilities, which are at most 0.",
        Severity.HIGH,
        {"input_from": feeder.op.lower() if feeder is not None else ""},
    )


def _wrong_axis(found: LossInput, softmax: Feeder, axis: int) -> Verdict:
    evidence: dict[str, Evidence] = {"axis": softmax.axis or 0, "class_axis": axis}
    return 1, verdict(
        SOFTMAX_OVER_BATCH_AXIS,
        found,
        f"{'log_softmax' if softmax.op == 'LogSoftmax' else 'softmax'} of shape {softmax.shape} "
        f"runs over axis {softmax.axis}, but the loss has its classes on axis {axis}.",
        Severity.HIGH,
        evidence,
    )


def _range(found: LossInput) -> Iterator[Verdict]:
    low, high = found.low, found.high
    if low is None or high is None or (low >= 0 and high <= 1):
        return
    yield (
        _TWICE,
        verdict(
            LABELS_OUT_OF_RANGE,
            found,
            f"Targets of a binary cross entropy lie between {low:.4g} and {high:.4g}; allowed is 0 "
            "to 1.",
            Severity.INFO if _is_noisy(low, high) else Severity.HIGH,
            {"low": Quantity(value=low, limit=0.0), "high": Quantity(value=high, limit=1.0)},
        ),
    )


def _is_noisy(low: float, high: float) -> bool:
    """Whether true labels are blurred on purpose, to a little more than one."""
    return low >= 0 and high < _BLURRED and high != round(high)


def _ignored(found: LossInput) -> Verdict:
    return (1 if found.averaged else CONSECUTIVE), verdict(
        ALL_TARGETS_IGNORED,
        found,
        f"All {found.labels} targets of the batch equal ignore_index, so the loss "
        f"{'is a mean over nothing' if found.averaged else 'is zero and has no gradient'}.",
        Severity.HIGH,
        {"ignored": Quantity(value=found.ignored, unit="targets", limit=found.labels)},
    )


def _broadcast(found: LossInput) -> Iterator[Verdict]:
    given, shape, target = found.given, found.shape, found.target
    if given == shape or not given or math.prod(shape) < 4 or found.explicit:
        return
    if found.loss == "Sub":
        by_column = len(given) == 2 and given[1] == 1 and given[0] > 1
        explicit = found.feeders[0].op in ("Unsqueeze", "View", "Index", "Expand", "UnsafeView")
        if not by_column or explicit or shape != (given[0], given[0]):
            return
        target = (given[0],)
    elif target is None or math.prod(target) == math.prod(shape) or math.prod(given) < 2:
        return
    verb = "multiplied with" if found.loss == "Mul" else "compared with"
    yield (
        _TWICE,
        verdict(
            BROADCAST_TARGET,
            found,
            f"A prediction of shape {given} is {verb} a target of shape {target} at shape "
            f"{shape}: every prediction with every target.",
            Severity.HIGH,
            {"pairs": Quantity(value=math.prod(shape), limit=math.prod(given))},
        ),
    )


def _values_of(feeder: Feeder) -> str:
    if feeder.low is None or feeder.high is None:
        return ""
    return f" (between {feeder.low:.3f} and {feeder.high:.3f})"
