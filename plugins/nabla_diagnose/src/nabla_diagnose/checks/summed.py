"""Whether the first loss is that of guessing times the number of samples."""

from __future__ import annotations

from ..chart import Chart

__all__ = ["is_summed"]

_LEAST_SAMPLES = 8
_BELOW = 0.8
_ABOVE = 1.3
_UNSURE_ABOVE = 2.0
"""Where the outputs are known to be so narrow that they cannot make a loss high."""
_NARROW = 1.0


def is_summed(chart: Chart) -> bool:
    """Whether the first loss is as high as a sum over the declared samples would be."""
    chance, samples = chart.chance, chart.options.batch_size
    if chance is None or samples < _LEAST_SAMPLES or not chart.first:
        return False
    spread = chart.first_spread
    above = _UNSURE_ABOVE if spread is not None and spread < _NARROW else _ABOVE
    return _BELOW < chart.first[0] / (chance * samples) < above
