"""A propagation as an issue, so that a stored report explains as well as a live session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nabla_core.issue import Issue, Location

from .onsets import Onset, Quantity, State
from .propagation import Propagation
from .rules import PROPAGATION

__all__ = ["issue_of", "layer_order", "propagation_in"]

_MOST = 64
_STATES: dict[str, State] = {
    "exploding": "exploding",
    "shrinking": "shrinking",
    "zero": "zero",
    "non-finite": "non-finite",
}
_QUANTITIES: dict[str, Quantity] = {"outputs": "outputs", "gradients": "gradients"}


def issue_of(found: Propagation) -> Issue:
    """Return the issue that says how a change went through the layers."""
    origin = found.onsets[0]
    layers = len({onset.layer for onset in found.onsets})
    began = (
        f"{layers} of {len(found.layout)} layers changed their scale in step {origin.step}, each "
        "of itself"
        if found.spread
        else f"It began in {found.origin} in step {origin.step} and reached {layers} of "
        f"{len(found.layout)} layers"
    )
    return PROPAGATION.issue(
        f"{began}: {found.transitions()[0].text}",
        step=origin.step,
        where=None if found.by_steps else Location(module=found.layout[origin.layer]),
        confidence=0.9,
        layers=layers,
        all_layers=len(found.layout),
        spread=found.spread,
        before=_name(found, found.before),
        path="; ".join(_entry(found, onset) for onset in found.onsets[:_MOST]),
        rising_since="" if found.rising_since is None else found.rising_since,
    )


def propagation_in(issue: Issue) -> Propagation | None:
    """Read an issue of :func:`issue_of` back; ``None`` where it holds nothing of the kind."""
    entries = str(issue.evidence.get("path", "")).split("; ")
    size = issue.evidence.get("all_layers", 0)
    onsets: list[Onset] = []
    layout = [""] * (int(size) if isinstance(size, (int, float)) and 0 < size <= 4096 else 0)
    for entry in entries:
        onset = _onset(entry, layout)
        if onset is not None:
            onsets.append(onset)
    if not onsets:
        return None
    spread = bool(issue.evidence.get("spread"))
    since = issue.evidence.get("rising_since")
    rising = int(since) if isinstance(since, int) and 0 <= since <= onsets[0].step else None
    read = Propagation(
        layout=tuple(layout), onsets=tuple(onsets), spread=spread, rising_since=rising
    )
    name = str(issue.evidence.get("before", ""))
    if 0 <= read.before < len(layout) and name and not layout[read.before]:
        layout[read.before] = name
    return replace(read, layout=tuple(layout))


def _entry(found: Propagation, onset: Onset) -> str:
    name = _name(found, onset.layer) or "-"
    return (
        f"step {onset.step} layer {onset.layer} {name} {onset.quantity} {onset.state} "
        f"from {onset.before:.6g} to {onset.after:.6g}"
    )


def _name(found: Propagation, place: int) -> str:
    """The name of a layer without what separates entries; empty outside of the layout."""
    if not 0 <= place < len(found.layout):
        return ""
    return "_".join(found.layout[place].replace(";", "_").split())


def _onset(entry: str, layout: list[str]) -> Onset | None:
    try:
        _, step, _, layer, name, quantity, state, _, before, _, after = entry.split(" ")
        place, low, high = int(layer), float(before), float(after)
        if place < 0:
            return None
        layout[place] = name
        finite = 0.0 < high < math.inf and 0.0 < low < math.inf
        return Onset(
            layer=place,
            quantity=_QUANTITIES[quantity],
            state=_STATES[state],
            step=int(step),
            before=low,
            after=high,
            octaves=math.log2(high / low) if finite else math.inf,
        )
    except (ValueError, KeyError, IndexError):
        return None  # a stored report is hostile input; what is no entry is passed over


def layer_order(found: Sequence[Propagation]) -> dict[str, int]:
    """Return the places of the layers, as far as propagations name them."""
    order: dict[str, int] = {}
    for propagation in found:
        for place, name in enumerate(propagation.layout):
            if name:
                order.setdefault(name, place)
    return order
