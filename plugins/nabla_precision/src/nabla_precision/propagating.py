"""The whole model in a dtype: what each module's output is off by, inherited errors included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import Module

from .accumulating import Accumulating, unwatched
from .alone import Cast, call_with
from .calls import Frame, Original, replaced_call
from .exact import norm
from .reference import Batch
from .restoring import set_device_states
from .tree import mapped, tensors_in

__all__ = ["propagated_errors"]


def propagated_errors(
    model: Module, batch: Batch, cast: Cast, frames: Sequence[Frame], start: tuple[Tensor, ...]
) -> dict[int, float]:
    """Return the relative error of each call's output, by its number.

    Ends early where the model takes another path than in the reference pass, or raises.

    Args:
        model: the model.
        batch: what it is called with.
        cast: dtype to run in.
        frames: the calls of the reference pass.
        start: states of the random generators at the beginning of that pass.
    """
    errors: dict[int, float] = {}
    numbers = iter(range(len(frames)))

    def call(
        original: Original, module: Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        number = _next(numbers, frames, module)
        output = original(module, *args, **kwargs)
        if number is not None:
            with unwatched():
                errors[number] = _error(tensors_in(output), tensors_in(frames[number].output))
        return output

    set_device_states(start)
    args, kwargs = mapped((batch.args, dict(batch.kwargs)), cast)
    mode = cast.mode or Accumulating(cast.dtype)
    try:
        with torch.no_grad(), replaced_call(call), mode:
            call_with(model, cast.state(model), args, kwargs)
    except Exception:
        return errors  # what was measured up to there is right; the module itself says why it fails
    return errors


def _next(numbers: Iterator[int], frames: Sequence[Frame], module: Module) -> int | None:
    number = next(numbers, None)
    if number is None or frames[number].module is module:
        return number
    for _ in numbers:  # another path: nothing that comes can be compared
        continue
    return None


def _error(found: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    worst = math.nan
    if len(found) != len(exact):
        return worst
    for candidate, truth in zip(found, exact, strict=True):
        if candidate.shape != truth.shape or not truth.numel():
            continue
        size = norm(truth)
        if 0.0 < size < math.inf:
            off = norm(_distance(candidate, truth)) / size
            off = math.inf if math.isnan(off) else off
            worst = off if math.isnan(worst) else max(worst, off)
    return worst


def _distance(candidate: Tensor, truth: Tensor) -> Tensor:
    """Return the distance of a result from the exact one; for narrow dtypes, float32 tells it."""
    if candidate.itemsize < 4:
        return candidate.float().sub_(truth.float())
    return candidate - truth
