"""``nabla.precision.audit``: which dtype each module of a model can run in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import Module

from nabla_core.errors import UsageError
from nabla_core.session import Session, SessionOptions

from .alone import Cast
from .calls import calls_replaced
from .exact import top
from .joining import Gathered, joined
from .judging import judge
from .measuring import Casts, FrameResult, Limits, measure
from .propagating import propagated_errors
from .reference import Batch, LossFunction, Reference, read_batch, run_reference
from .restoring import untouched
from .result import ModulePrecision, PrecisionReport
from .rules import RULES

__all__ = ["CANDIDATES", "audit", "dtype_name"]

CANDIDATES = (torch.float16, torch.bfloat16, torch.float32)
_PLAIN_CONTAINERS = (nn.Sequential.forward, nn.Identity.forward)
_NARROWEST_BITS = 16


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``"float16"`` for ``torch.float16``."""
    return str(dtype).removeprefix("torch.")


def audit(
    model: Module,
    inputs: object,
    *,
    loss_fn: LossFunction | None = None,
    candidate_dtypes: Iterable[torch.dtype] = CANDIDATES,
    limits: Limits | None = None,
) -> PrecisionReport:
    """Measure each module's own rounding error in each dtype against float64.

    One pass in float64 records what every module is given. Each module is then run alone on that
    in each candidate dtype, forward and backward, so that it is judged by its own error and not by
    what it inherits; arithmetic between modules is judged as the own code of the module that does
    it. Parameters, buffers, gradients, modes, attributes and random states are left as they were.

    Args:
        model: in the mode in which it is to be judged.
        inputs: one batch: a tensor, positional arguments in a tuple, or keyword arguments in a
            dict. For a loss of output and target, the last element of the tuple is the target.
        loss_fn: a function of the output, or of output and target, that returns one number.
            Without it the loss that the model returns is taken, or gradients of a random direction,
            whose range is not judged.
        candidate_dtypes: in the order of preference.
        limits: see :class:`.measuring.Limits`.

    Raises:
        UsageError: an argument is wrong.
        InputError: the model raises on these inputs.

    Example::

        report = nabla.precision.audit(model, (x, y), loss_fn=nn.CrossEntropyLoss())
        report.print()
        print(report.exclusions())
    """
    model, dtypes = _checked(model, candidate_dtypes)
    batch = read_batch(inputs, loss_fn)
    with untouched(model), calls_replaced():
        reference = run_reference(model, batch, loss_fn)
        casts = _casts(reference, dtypes)
        gathered = _gather(model, batch, reference, casts, limits or Limits())
    own = {dtype_name(p.dtype) for p in model.parameters() if p.is_floating_point()}
    return _report(model, gathered, reference, casts, frozenset(own))


def _checked(
    model: Module, candidate_dtypes: Iterable[torch.dtype]
) -> tuple[Module, list[torch.dtype]]:
    if not isinstance(model, Module):
        raise UsageError(f"audit({type(model).__name__}): needs a torch.nn.Module")
    dtypes = list(dict.fromkeys(candidate_dtypes))
    for dtype in dtypes:
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise UsageError(f"audit(candidate_dtypes=[{dtype}]): needs floating-point dtypes")
        if torch.finfo(dtype).bits < _NARROWEST_BITS or dtype is torch.float64:
            raise UsageError(
                f"audit(candidate_dtypes=[{dtype}]): choose from float16, bfloat16 and float32"
            )
    if not dtypes:
        raise UsageError("audit(candidate_dtypes=[]): needs at least one dtype")
    inner = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    return (inner if isinstance(inner, Module) else model), dtypes


def _casts(reference: Reference, dtypes: Sequence[torch.dtype]) -> Casts:
    judged = [dtype for dtype in dtypes if dtype is not reference.dtype]
    candidates = {dtype_name(dtype): Cast(dtype) for dtype in judged}
    control = candidates.get("float32") or Cast(torch.float32)
    highest = _largest_gradient(reference) if reference.has_loss else 0.0
    scales = {}
    for name, cast in candidates.items():
        if 0.0 < highest < math.inf:
            exponent = math.floor(math.log2(float(torch.finfo(cast.dtype).max) / highest)) - 1
            scales[name] = 2.0 ** min(exponent, 120)
    return Casts(
        reference=Cast(reference.dtype),
        control=control,
        candidates=candidates,
        loss_scales=scales,
        parameter_grads=_single_use(reference),
    )


def _single_use(reference: Reference) -> dict[int, Tensor]:
    """Return the gradients of the parameters that one call alone has used."""
    uses: Counter[int] = Counter()
    for frame in reference.frames:
        theirs = {id(p) for child in frame.children for p in child.module.parameters()}
        uses.update({id(p) for p in frame.module.parameters()} - theirs)
    return {key: g for key, g in reference.parameter_grads.items() if uses[key] == 1}


def _largest_gradient(reference: Reference) -> float:
    flowing = [grad for frame in reference.frames for grad in frame.grads.values()]
    tops = [top(g) for g in (*flowing, *reference.parameter_grads.values())]
    return max(tops, default=0.0)


def _gather(
    model: Module, batch: Batch, reference: Reference, casts: Casts, limits: Limits
) -> Gathered:
    frames = reference.frames
    propagated = {
        name: propagated_errors(model, batch, cast, frames, reference.start)
        for name, cast in casts.candidates.items()
    }
    gathered = Gathered()
    for number, frame in enumerate(frames):
        if type(frame.module).forward not in _PLAIN_CONTAINERS:
            result = measure(frame, casts, limits)
            errors = {name: found.get(number, math.nan) for name, found in propagated.items()}
            gathered.add(frame, _with_propagated(result, errors))
        frame.release()  # callers come before the calls that they make
    return gathered


def _with_propagated(result: FrameResult, errors: dict[str, float]) -> FrameResult:
    measured = {
        name: replace(found, propagated_error=errors[name])
        for name, found in result.measurements.items()
    }
    return replace(result, measurements=measured)


def _report(
    model: Module,
    gathered: Gathered,
    reference: Reference,
    casts: Casts,
    own_dtypes: frozenset[str],
) -> PrecisionReport:
    names = tuple(casts.candidates)
    modules: tuple[ModulePrecision, ...] = joined(gathered, names)
    session = Session(options=SessionOptions(command="nabla.precision.audit"))
    with session:
        session.use(RULES)
        issues = judge(modules, casts.loss_scales, own_dtypes)
        kept = tuple(k for issue in issues if (k := session.add(issue)) is not None)
    notes = list(reference.notes)
    if reference.dtype is torch.float32:
        notes.append("float32 is not judged: it is the reference")
    return PrecisionReport(
        model=type(model).__name__,
        dtypes=names,
        modules=modules,
        issues=kept,
        notes=tuple(notes),
        not_evaluated=gathered.not_evaluated(reference.has_loss),
    )
