"""The same call again: nondeterminism, leaking state, disturbed random generators."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import torch

from nabla_core.issue import Issue, Phase, Quantity
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from ..examination import Examination
from ..inputs import rng
from ..inputs.evaluation import Gradients, OperatorRaised, Outputs
from ..inputs.layout_names import Layout
from ..inputs.layouts import relayout
from ..rules import (
    MUTATES_SAVED,
    NONDETERMINISTIC_BACKWARD,
    NONDETERMINISTIC_FORWARD,
    RNG_CORRUPTED,
    STATE_LEAK,
)
from ..wording.compare import largest, same_bits
from .linearity import nonlinear, refuses_layout, wrong_layout

__all__ = ["random_generators", "repeat_backward", "repeat_forward"]

_SCALE = -1024.0
_HEADROOM = 2.0**10  # sums inside a backward are larger than what comes out of it
_MORE_SEEDS = 8
_VERSION_ERROR = "modified by an inplace operation"
_VIEW_ERROR = "has been modified inplace"


def repeat_forward(exam: Examination) -> Iterator[Issue]:
    """Call again at once, with the same inputs and random state (CHK221)."""
    base = exam.baseline
    again = exam.candidate.forward(exam.operands.values(), stage="repeated forward")
    names = base.outputs.live_names
    for name, first, second in zip(names, base.output_copies, again.differentiable, strict=False):
        if not same_bits(first, second):
            yield _differs(exam, NONDETERMINISTIC_FORWARD, name, first, second, "forward")
            return


def repeat_backward(exam: Examination) -> Iterator[Issue]:
    """Pull the cotangents, scaled by a negative power of two and strided, through the first graph
    again after other calls were made (CHK211, CHK212, CHK222, CHK223, CHK233).

    Such a scaling is exact in floating point, so a linear and deterministic backward repeats every
    bit of its first gradient.
    """
    base = exam.baseline
    if exam.reference is not None and exam.own_derivatives:
        _call_elsewhere(exam)
    try:
        again = yield from _strided(exam, _scale_for(base.gradient_copies))
    except OperatorRaised as raised:
        yield _cannot_repeat(exam, raised)
        return
    yield from _overwritten_outputs(exam)
    if _first_difference(base.gradient_copies, again) is None:
        yield from _workspace(exam)
        return
    scale = _scale_for(base.gradient_copies)
    dense = _pull(exam, base.outputs, scale)
    if _first_difference(base.gradient_copies, dense) is None:
        yield from wrong_layout(exam, again, base.gradient_copies, "strided")
        return
    second = _pull(exam, base.outputs, 1.0)
    which = _first_difference(base.gradient_copies, second)
    if which is None:
        yield from nonlinear(exam, dense, base.gradient_copies, f"scaled by {scale:g}")
        return
    third = _pull(exam, base.outputs, 1.0)
    steady = _first_difference(second, third) is None
    rule = STATE_LEAK if steady and _fresh_agrees(exam) else NONDETERMINISTIC_BACKWARD
    yield _changed(exam, rule, which, base.gradient_copies[which], second[which])


def _changed(
    exam: Examination,
    rule: Rule,
    which: int,
    first: torch.Tensor | None,
    second: torch.Tensor | None,
) -> Issue:
    name = exam.operands.live_names[which]
    if first is None or second is None:
        return exam.verdict(
            rule, f"The gradient of {name} is sometimes None for the same graph.", operand=name
        )
    return _differs(exam, rule, name, first, second, "backward")


def _call_elsewhere(exam: Examination) -> None:
    """Call at another point, as the numerical derivative does: shared state goes with it."""
    points = tuple(0.9 * x + 0.01 for x in exam.operands.originals())
    exam.candidate.values_at(points, ())


def _strided(exam: Examination, scale: float) -> Generator[Issue, None, Gradients]:
    """Scale and change the memory layout at once; without the layout where that is refused."""
    try:
        return _pull(exam, exam.baseline.outputs, scale, "strided")
    except OperatorRaised as raised:
        if _VERSION_ERROR in str(raised.error) or not refuses_layout(raised):
            raise
        yield exam.note("strided incoming gradient", f"refused by {raised.summary}")
    return _pull(exam, exam.baseline.outputs, scale)


def _scale_for(gradients: Gradients) -> float:
    """Return the factor for the cotangents; only the sign changes where more would overflow."""
    found = [g for g in gradients if g is not None]
    safe = all(largest(g) < torch.finfo(g.dtype).max / (_HEADROOM * -_SCALE) for g in found)
    return _SCALE if safe else -1.0


def _pull(
    exam: Examination, outputs: Outputs, scale: float, layout: Layout = "contiguous"
) -> Gradients:
    """Return the gradients under the scaled cotangents, divided by ``scale``."""
    base = exam.baseline
    handed = tuple(relayout(scale * x, layout) for x in base.cotangents)
    pulled = exam.candidate.vjp(outputs, base.values, handed, stage="repeated backward")
    return pulled if scale == 1.0 else tuple(None if g is None else g / scale for g in pulled)


def _fresh_agrees(exam: Examination) -> bool:
    """Whether a new graph at the same point gives the first gradient again."""
    values = exam.operands.values()
    outputs = exam.candidate.forward(values, stage="repeated forward")
    handed = tuple(x.clone() for x in exam.baseline.cotangents)
    fresh = exam.candidate.vjp(outputs, values, handed, stage="repeated backward")
    return _first_difference(exam.baseline.gradient_copies, fresh) is None


def _first_difference(first: Gradients, second: Gradients) -> int | None:
    for which, (a, b) in enumerate(zip(first, second, strict=True)):
        if (a is None) != (b is None):
            return which
        if a is not None and b is not None and not same_bits(a, b):
            return which
    return None


def _overwritten_outputs(exam: Examination) -> Iterator[Issue]:
    """Outputs that later calls change live in a shared buffer."""
    base = exam.baseline
    names = base.outputs.live_names
    for name, copy, live in zip(
        names, base.output_copies, base.outputs.differentiable, strict=True
    ):
        if not same_bits(copy, live):
            yield exam.verdict(
                STATE_LEAK,
                f"A later call overwrote {name} of an earlier one: it changed by up to "
                f"{largest(live.detach() - copy):.3g}, limit 0.",
                operand=name,
                phase="forward",
            )
            return


def _workspace(exam: Examination) -> Iterator[Issue]:
    """A gradient that changes after it was delivered lives in a shared buffer."""
    base = exam.baseline
    which = _first_difference(base.gradient_copies, base.gradients)
    if which is None:
        return
    name = exam.operands.live_names[which]
    yield exam.verdict(
        STATE_LEAK,
        f"A later backward overwrote the gradient of {name} that was delivered before, limit 0 "
        "changes.",
        operand=name,
    )


def _cannot_repeat(exam: Examination, raised: OperatorRaised) -> Issue:
    if _VERSION_ERROR in str(raised.error):
        return exam.verdict(
            MUTATES_SAVED,
            "The backward wrote into a tensor that it saved: a second backward through the same "
            f"graph raises {raised.summary}",
        )
    if _VIEW_ERROR in str(raised.error):
        return exam.verdict(
            STATE_LEAK,
            "A later call overwrote an output of an earlier one: the backward of the earlier one "
            f"raises {raised.summary}",
        )
    exam.single_use = True
    return exam.note("repeated backward", f"it raised {raised.summary}")


def _called(output: str) -> str:
    return output if output.startswith("output") else f"output {output}"


def _differs(
    exam: Examination,
    rule: Rule,
    name: str,
    first: torch.Tensor,
    second: torch.Tensor,
    phase: Phase,
) -> Issue:
    gap = largest(first.to(second.dtype) - second.detach()) if first.shape == second.shape else 0.0
    scale = largest(first)
    relative = gap / scale if scale else 0.0
    what = _called(name) if phase == "forward" else f"gradient of {name}"
    later = " after other calls" if rule is STATE_LEAK else ""
    atomics = first.device.type != "cpu" and relative < 64 * torch.finfo(first.dtype).eps
    soft = atomics and not exam.options.demands("determinism")
    return exam.verdict(
        rule,
        f"The {what} differs by {gap:.3g} ({relative:.2g} of its largest element) when "
        f"it is computed again{later}, limit 0.",
        operand=name,
        phase=phase,
        severity=Severity.INFO if soft else None,
        difference=Quantity(value=gap, limit=0.0),
        relative=relative,
    )


def random_generators(exam: Examination) -> Iterator[Issue]:
    """Look at the global random generators before and after the operator (CHK224)."""
    moved = exam.drawn_backward
    if moved:
        names = ", ".join(moved)
        yield exam.verdict(
            RNG_CORRUPTED,
            f"The backward moved the global random generator ({names}): its state differs before "
            "and after.",
            generators=names,
        )
    if not exam.candidate.stochastic:
        return
    exam.candidate.forward(exam.operands.values(), stage="forward with its own random state")
    usual = rng.capture()
    moved_forward = rng.changed(exam.candidate.start, usual)
    outputs, ended = _with_other_seed(exam, exam.seed + 1)
    reseeded = set(moved_forward) - set(rng.changed(usual, ended))
    if reseeded:
        names = ", ".join(sorted(reseeded))
        yield exam.verdict(
            RNG_CORRUPTED,
            f"The forward reseeds the global random generator ({names}): from two different states "
            "it ends in the same one.",
            phase="forward",
            generators=names,
        )
    elif _same_outputs(exam, outputs) and not _reference_draws(exam) and _is_deaf(exam):
        yield exam.verdict(
            RNG_CORRUPTED,
            "The forward advances the global random generator, but its output does not depend "
            "on it.",
            phase="forward",
        )


def _is_deaf(exam: Examination) -> bool:
    """Whether no random state changes the output, also none in which a rare branch is taken."""
    seeds = (*rng.EXTREME_SEEDS, *range(exam.seed + 2, exam.seed + 2 + _MORE_SEEDS))
    return all(_same_outputs(exam, _with_other_seed(exam, seed)[0]) for seed in seeds)


def _with_other_seed(exam: Examination, seed: int) -> tuple[Outputs, rng.RandomState]:
    kept = exam.candidate.start
    with_numpy = "numpy" in exam.drawn_forward
    exam.candidate.start = rng.seeded(seed, kept, with_numpy=with_numpy)
    try:
        outputs = exam.candidate.forward(
            exam.operands.values(), stage="forward with another random state"
        )
        return outputs, rng.capture()
    finally:
        exam.candidate.start = kept


def _same_outputs(exam: Examination, outputs: Outputs) -> bool:
    pairs = zip(exam.baseline.output_copies, outputs.differentiable, strict=False)
    return all(same_bits(a, b) for a, b in pairs)


def _reference_draws(exam: Examination) -> bool:
    if exam.reference is None:
        return False
    rng.restore(exam.reference.start)
    exam.reference.forward(exam.operands.values(), stage="reference")
    return bool(rng.changed(exam.reference.start, rng.capture()))
