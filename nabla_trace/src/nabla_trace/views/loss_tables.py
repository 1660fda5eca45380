"""Tables of losses: lengths and cosines at one place, and a heat map over all layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from ..gram_facts import GramFacts
from .bars import bar, shade, signed

__all__ = ["layer_lines", "loss_lines"]

_WIDTH = 12
_ROWS = 40


def loss_lines(name: str, losses: Sequence[str], gram: Tensor) -> list[str]:
    """Return lengths, cosines and cancellation at one place.

    Args:
        name: what it is about.
        losses: names of the losses.
        gram: inner products ``[K, K]``.
    """
    facts = GramFacts(gram)
    lines = [f"{name}: cancellation {facts.cancellation:.3f}"]
    width = max(len(loss) for loss in losses)
    for index, loss in enumerate(losses):
        share, norm = float(facts.share[index]), float(facts.norms[index])
        lines.append(f"  {loss:<{width}}  {norm:>10.4g}  {bar(share, _WIDTH)} {share:.0%}")
    for i, j in _pairs(losses):
        cosine = float(facts.cosines[i, j])
        lines.append(f"  cosine of {losses[i]} and {losses[j]}: {signed(cosine)}")
    return lines


def layer_lines(losses: Sequence[str], layers: Mapping[str, Tensor]) -> list[str]:
    """Return one row per layer with a cell per pair of losses; nothing without layers or pairs.

    Args:
        losses: names of the losses.
        layers: name → inner products ``[K, K]``.
    """
    pairs = _pairs(losses)
    if not layers or not pairs:
        return []
    legend = "; ".join(f"{losses[i]}, {losses[j]}" for i, j in pairs)
    lines = ["", f"layers: share of the gradient length, then the cosine of {legend}"]
    lengths = {name: float(gram.diagonal().sum()) ** 0.5 for name, gram in layers.items()}
    largest = max(lengths.values(), default=0.0) or 1.0
    width = min(40, max(len(name) for name in layers))
    for name, gram in list(layers.items())[:_ROWS]:
        cosines = GramFacts(gram).cosines
        values = [float(cosines[i, j]) for i, j in pairs]
        cells = " ".join(f"{shade(value)}{signed(value)}" for value in values)
        lines.append(f"  {name[-width:]:<{width}}  {bar(lengths[name] / largest, _WIDTH)}  {cells}")
    if len(layers) > _ROWS:
        lines.append(f"  and {len(layers) - _ROWS} more")
    return lines


def _pairs(losses: Sequence[str]) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(losses)) for j in range(i + 1, len(losses))]
