"""Faults of whole layers that their ranges decide: dead, or a hundred times larger than before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nabla_core.issue import Issue, Location, Quantity

from .frames import GRADIENTS, OUTPUTS, Frames
from .rules import DEAD_LAYER, LAYER_JUMP

__all__ = ["DEAD_STEPS", "dead_layer", "layer_jump"]

DEAD_STEPS = 8
"""So many measured steps in a row have to be zero."""

_JUMP, _STAYED = 100.0, 20.0
_JUMP_BEFORE, _JUMP_STEPS = 16, 3

History = Sequence[tuple[int, float]]


def dead_layer(frames: Frames) -> Iterator[Issue]:
    """Yield the first layer that died, if there is one.

    Its outputs are exactly zero up to the last step, although the layer that runs before it gives
    something else, and the gradient of what that layer gives is exactly zero too. A layer whose
    inputs are zero, such as an idle expert's, is not the first that is zero. Where the layer before
    gives negative numbers only, that one is named: its units are what is dead.
    """
    for layer in range(len(frames.layout)):
        zeros = _trailing_zeros(frames.history(OUTPUTS, layer))
        if len(zeros) >= DEAD_STEPS and not _fed_zeros(frames, layer, zeros):
            pairs = _ranges(frames, layer - 1, zeros)
            below = _pushed_below(pairs)
            if below is None and (_is_still(pairs) or not _was_alive(frames, layer, zeros)):
                continue  # switched off on purpose, or given nothing, for all we know
            if layer and not _all_zero(frames, GRADIENTS, layer - 1, zeros):
                continue
            yield _dead(frames, layer, zeros, below)
            return


def layer_jump(frames: Frames) -> Iterator[Issue]:
    """Yield the first layer whose outputs jumped and stayed there, if there is one."""
    found = [
        jump
        for layer in range(len(frames.layout))
        if (jump := _jump(frames.history(OUTPUTS, layer), layer)) is not None
    ]
    if not found:
        return
    step, layer, usual, now = min(found)
    name, ratio = frames.layout[layer], now / usual
    yield LAYER_JUMP.issue(
        f"From step {step} on the outputs of {name} reach {now:.3g}, {ratio:.3g} times the largest "
        f"of the {_JUMP_BEFORE} or more steps before ({usual:.3g}; limit {_JUMP:g}).",
        step=step,
        where=Location(module=name),
        confidence=0.9,
        largest=Quantity(value=now),
        ratio=Quantity(value=ratio, limit=_JUMP),
        layers=len(found),
    )


def _jump(history: History, layer: int) -> tuple[int, int, float, float] | None:
    """Return step, layer, usual and new magnitude of a jump that lasts up to the end."""
    usual = 0.0
    for place, (step, now) in enumerate(history[: 1 - _JUMP_STEPS]):
        if place >= _JUMP_BEFORE and 0.0 < _JUMP * usual <= now < math.inf:
            later = [value for _, value in history[place:]]
            if min(later) >= _STAYED * usual and max(later) < math.inf:
                return step, layer, usual, now
        usual = max(usual, now)
    return None


def _trailing_zeros(history: History) -> list[int]:
    """Return the steps at the end in which a layer gave nothing but zeros."""
    steps: list[int] = []
    for step, value in reversed(history):
        if value != 0.0:
            break
        steps.append(step)
    return steps[::-1]


def _was_alive(frames: Frames, layer: int, zeros: list[int]) -> bool:
    return any(step < zeros[0] and value > 0.0 for step, value in frames.history(OUTPUTS, layer))


def _fed_zeros(frames: Frames, layer: int, zeros: list[int]) -> bool:
    """Whether the layer that runs before gives zeros too; the first is given data."""
    if not layer:
        return False
    before = dict(frames.history(OUTPUTS, layer - 1))
    return not any(before.get(step, 0.0) > 0.0 for step in zeros)


def _all_zero(frames: Frames, quantity: str, layer: int, steps: list[int]) -> bool:
    known = dict(frames.history(quantity, layer))
    return any(step in known for step in steps) and not any(known.get(step, 0.0) for step in steps)


def _ranges(frames: Frames, layer: int, steps: list[int]) -> list[tuple[float, float]]:
    """Return the smallest and the largest output of a layer in some steps."""
    wanted = set(steps)
    return [
        (frame.lows[layer], frame.highs[layer])
        for frame in frames.steps
        if frame.step in wanted and 0 <= layer < len(frame.highs)
    ]


def _is_still(pairs: list[tuple[float, float]]) -> bool:
    """Whether a layer gave the same in most steps: what it was given did not depend on the batch.

    So does an idle expert, whose outputs are its biases.
    """
    return bool(pairs) and len(set(pairs)) <= len(pairs) // 2


def _pushed_below(pairs: list[tuple[float, float]]) -> float | None:
    """Return the largest output of a layer, if all of them are negative and it is no idle expert's.

    All units of a layer whose weights are zero may give the same in every step.
    """
    if not pairs or max(high for _, high in pairs) >= 0.0:
        return None
    equal = all(low == high for low, high in pairs)
    return None if _is_still(pairs) and not equal else max(high for _, high in pairs)


def _dead(frames: Frames, layer: int, zeros: list[int], below: float | None) -> Issue:
    name, since = frames.layout[layer], zeros[0]
    origin = name if below is None else frames.layout[layer - 1]
    why = (
        ""
        if below is None
        else f" because every output of {origin} is negative (largest {below:.3g})"
    )
    return DEAD_LAYER.issue(
        f"From step {since} on every output of {name} is zero{why}, and no gradient goes through "
        f"it: {len(zeros)} measured steps up to step {zeros[-1]} (limit {DEAD_STEPS}).",
        step=since,
        where=Location(module=origin),
        confidence=0.95,
        zero_steps=Quantity(value=len(zeros), unit="steps", limit=DEAD_STEPS),
        measured_at=name,
    )
