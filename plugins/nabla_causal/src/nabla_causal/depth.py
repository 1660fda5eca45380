"""What single looks at the layers decide: gradients that fade, ranges at their ends, inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nabla_core.issue import Issue, Location, Quantity

from .frames import GRADIENTS, Frames
from .rules import FADING_GRADIENTS, INPUT_SHIFT, SATURATED_LAYER

__all__ = [
    "LOOKS",
    "Faded",
    "faded",
    "fading",
    "fading_since",
    "input_shift",
    "saturated",
    "saturation",
]

LOOKS = 3
"""So many looks in a row have to agree."""

_SUSPECT = 1e2
_RATIO = 1e4
_LAYERS = 4
_ALIKE = 0.6
_SATURATED = 0.7
_SHIFT = 4.0
_EARLIER = 3

Faded = tuple[str, str, float]
"""First and last layer, and how many times the gradient of the first is below that of the last."""

Sizes = Sequence[tuple[int, float]]


def fading_since(frames: Frames) -> int | None:
    """Return the step from which on the gradients fell a hundred times on their way to the front.

    Judged by the largest gradient of each layer's outputs, which costs nothing but says nothing
    about weights: enough to look closer.
    """
    since = None
    for frame in reversed(frames.steps):
        values = [value for value in frame.values(GRADIENTS) if 0.0 < value < math.inf]
        if len(values) < _LAYERS or values[0] * _SUSPECT > values[-1]:
            break
        since = frame.step
    return since


def faded(gradients: Mapping[str, float], layout: Sequence[str]) -> Faded | None:
    """Say whether gradients, each against its weights, shrink from layer to layer to nothing.

    Args:
        gradients: relative gradient of each layer with weights.
        layout: names of the layers in the order in which they run; others are left out.
    """
    found = [
        (layer, gradients[layer]) for layer in layout if 0.0 < gradients.get(layer, 0.0) < math.inf
    ]
    if len(found) < _LAYERS:
        return None
    (first, low), (last, high) = found[0], found[-1]
    rises = sum(b > a for (_, a), (_, b) in zip(found, found[1:], strict=False))
    if rises < _ALIKE * (len(found) - 1) or high <= _RATIO * low:
        return None
    return first, last, high / low


def fading(found: Faded, since: int) -> Issue:
    """Return the issue of gradients that were :func:`faded` in :data:`LOOKS` looks in a row."""
    first, last, ratio = found
    return FADING_GRADIENTS.issue(
        f"The gradient of {first}, measured against its weights, is {ratio:.3g} times below that "
        f"of {last} (limit {_RATIO:g}), {LOOKS} looks in a row from step {since} on.",
        step=since,
        where=Location(module=first),
        confidence=0.95,
        ratio=Quantity(value=ratio, limit=_RATIO),
        compared_with=last,
    )


def saturated(ends: Mapping[str, float], layout: Sequence[str]) -> str | None:
    """Return the first layer with nearly all of its outputs at the ends of its range."""
    return next((layer for layer in layout if ends.get(layer, 0.0) > _SATURATED), None)


def saturation(layer: str, share: float, since: int) -> Issue:
    """Return the issue of a layer that was :func:`saturated` in :data:`LOOKS` looks in a row."""
    return SATURATED_LAYER.issue(
        f"{share:.0%} of the outputs of {layer} sit at the ends of its range (limit "
        f"{_SATURATED:.0%}), {LOOKS} looks in a row from step {since} on.",
        step=since,
        where=Location(module=layer),
        saturated_share=Quantity(value=share, limit=_SATURATED),
    )


def input_shift(module: str, sizes: Sizes) -> Iterator[Issue]:
    """Yield where the inputs of a module left the range of their sizes so far for good.

    Args:
        module: class of the root module.
        sizes: steps with the root mean square of the input.
    """
    for place in range(_EARLIER, len(sizes)):
        before = [size for _, size in sizes[:place]]
        later = [size for _, size in sizes[place:]]
        low, high = min(before), max(before)
        if not 0.0 < low <= high < math.inf or not all(map(math.isfinite, later)):
            continue
        grown = min(later) >= _SHIFT * high
        if grown or (max(later) * _SHIFT <= low and min(later) > 0.0):
            yield _shift(module, sizes[place - 1], sizes[place], grown)
            return


def _shift(module: str, before: tuple[int, float], now: tuple[int, float], grown: bool) -> Issue:
    ratio = now[1] / before[1] if grown else before[1] / now[1]
    return INPUT_SHIFT.issue(
        f"Between step {before[0]} and step {now[0]} the inputs of {module} "
        f"{'grew' if grown else 'shrank'} from {before[1]:.3g} to {now[1]:.3g} (root mean square), "
        f"{ratio:.3g} times (limit {_SHIFT:g}), and stayed there.",
        step=now[0],
        confidence=0.9,
        after_step=before[0],
        ratio=Quantity(value=ratio, limit=_SHIFT),
    )
