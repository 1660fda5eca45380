"""The gradient noise scale: how large a batch is worth its samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nabla_core.issue import Issue, Quantity
from nabla_core.reporters.style import counted

from .rules.noise import BATCH_TOO_LARGE, BATCH_TOO_SMALL, NOISE_UNDETERMINED

__all__ = ["NoiseEstimator", "NoiseScale", "noise_issues"]

_FAR = 20.0
_LEFT_OUT = torch.tensor([[-1.0, 0.0], [1.0, -2.0]], dtype=torch.float64)
_SURE = 1.645
"""Standard deviations of a two-sided interval of 90 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """The simple noise scale ``tr(S) / |G|^2`` with an interval of 90 %.

    Attributes:
        value: NaN when undetermined.
        low: lower end.
        high: upper end; infinite when the mean gradient may be zero.
        batches: batches that it was estimated from.
        samples: mean batch size.
    """

    value: float
    low: float
    high: float
    batches: int
    samples: float

    @property
    def is_determined(self) -> bool:
        """Whether the interval is bounded."""
        return math.isfinite(self.value) and math.isfinite(self.high)


class NoiseEstimator:
    """Averages numerator and denominator over batches, separately.

    The error of each comes from leaving out one sample after the other, within each batch: during
    training both change from batch to batch, which is no error.

    Source: McCandlish et al. 2018 (arXiv 1812.06162), with per-sample gradients instead of two
    batch sizes; the interval is Fieller's, for a ratio of two correlated means.
    """

    def __init__(self) -> None:
        self._trace = self._square = 0.0
        self._errors = torch.zeros(2, 2, dtype=torch.float64)
        self._batches = self._samples = 0

    def add(self, gram: Tensor) -> None:
        """Take a batch in.

        Args:
            gram: inner products ``[N, N]`` of per-sample gradients; three samples at least.
        """
        samples = len(gram)
        if samples < 3:
            return
        wide = gram.double().cpu()
        both = torch.stack([wide.diagonal(), wide.sum(1)])  # of each sample, with itself and all
        sums = both.sum(1, keepdim=True)
        trace, square = (_unbiased(samples) @ sums).flatten().tolist()
        # without a sample: minus its square, and minus twice its row plus its square
        spread = _unbiased(samples - 1) @ _LEFT_OUT @ (both - sums / samples)
        self._errors += (samples - 1) / samples * (spread @ spread.T)
        self._trace += trace
        self._square += square
        self._batches += 1
        self._samples += samples

    def scale(self) -> NoiseScale | None:
        """Return the estimate; ``None`` before the first batch."""
        count = self._batches
        if not count:
            return None
        trace, square, size = self._trace / count, self._square / count, self._samples / count
        low, high = (0.0, 0.0) if 0 <= trace <= 1e-12 * square else self._interval(trace, square)
        value = trace / square if math.isfinite(high) else math.nan
        return NoiseScale(value=value, low=low, high=high, batches=count, samples=size)

    def _interval(self, trace: float, square: float) -> tuple[float, float]:
        errors = _SURE**2 * self._errors / self._batches**2
        a = square**2 - float(errors[1, 1])
        b = trace * square - float(errors[0, 1])
        root = b**2 - a * (trace**2 - float(errors[0, 0]))
        if square <= 0 or a <= 0 or root < 0:
            return 0.0, math.inf
        return max(0.0, (b - math.sqrt(root)) / a), (b + math.sqrt(root)) / a


@lru_cache(maxsize=16)
def _unbiased(samples: int) -> Tensor:
    """Return the matrix ``[2, 2]`` that makes estimates of ``tr(S)`` and ``|G|^2`` from the sum of
    the squared lengths and the squared length of the sum of so many gradients."""
    one, pair = 1 / (samples - 1), 1 / (samples * (samples - 1))
    return torch.tensor([[one, -pair], [-pair, pair]], dtype=torch.float64)


def noise_issues(scale: NoiseScale | None) -> Iterator[Issue]:
    """Yield what the noise scale says about the batch size; information only."""
    if scale is None:
        return
    if not scale.is_determined:
        yield NOISE_UNDETERMINED.issue(
            f"With {counted(scale.batches, 'look')} at batches of {scale.samples:.0f}, the noise "
            f"scale is at least {scale.low:.3g} and has no upper limit.",
            batches=scale.batches,
            low=scale.low,
        )
        return
    interval = f"noise scale {scale.value:.3g} (90 %: {scale.low:.3g} to {scale.high:.3g})"
    if scale.low > _FAR * scale.samples:
        yield BATCH_TOO_SMALL.issue(
            f"Batches of {scale.samples:.0f} are below a twentieth of the {interval}.",
            ratio=Quantity(value=scale.low / scale.samples, limit=_FAR),
            noise_scale=scale.value,
        )
    elif scale.high * _FAR < scale.samples:
        ratio = scale.samples / scale.high if scale.high else math.inf
        yield BATCH_TOO_LARGE.issue(
            f"Batches of {scale.samples:.0f} are above twenty times the {interval}.",
            ratio=Quantity(value=ratio, limit=_FAR),
            noise_scale=scale.value,
        )
