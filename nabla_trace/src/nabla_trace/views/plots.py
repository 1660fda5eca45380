"""What was traced as plots: losses against losses, samples by rank, steps, layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nabla_core.plots import Cell, Curves, HeatMap, Ladder, Plot, Series, Table

from ..gram_facts import GramFacts

if TYPE_CHECKING:
    from torch import Tensor

    from ..live.findings import Findings
    from ..live.ladder import Rung
    from ..samples_result import SamplesResult
    from ..step_probes import NextBatchProbe

__all__ = ["loop_plots", "loss_plots", "sample_plots"]

_MOST_ROWS = 200


def loss_plots(
    losses: Sequence[str], gram: Tensor, layers: Mapping[str, Tensor]
) -> Iterator[HeatMap]:
    """Yield the matrix of losses against losses, and layers against pairs of losses.

    Args:
        losses: names of the ``K`` losses.
        gram: inner products ``[K, K]`` of their gradients.
        layers: name → the same at one parameter.
    """
    yield HeatMap(
        title="Cosine of the gradients of two losses",
        rows=tuple(losses),
        columns=tuple(losses),
        values=_rows(GramFacts(gram).cosines),
        row_label="loss",
        column_label="loss",
        scale="signed",
        note="blank where a gradient has length zero",
    )
    pairs = [(i, j) for j in range(len(losses)) for i in range(j)]
    if layers and pairs:
        cosines = [GramFacts(one).cosines for one in layers.values()]
        yield HeatMap(
            title="Cosine of the gradients, layer by layer",
            rows=tuple(layers),
            columns=tuple(f"{losses[i]}, {losses[j]}" for i, j in pairs),
            values=tuple(tuple(_known(one[i, j]) for i, j in pairs) for one in cosines),
            row_label="parameter",
            column_label="losses",
            scale="signed",
        )


def sample_plots(result: SamplesResult) -> Iterator[Plot]:
    """Yield the samples by rank: a curve of their shares, and a table."""
    order = result.rank("share")
    shares = [float(result.share[sample]) for sample in order]
    yield Curves(
        title="Share of the gradient length, by rank",
        series=(Series(name="share", at=tuple(range(1, len(order) + 1)), values=tuple(shares)),),
        x_label="rank",
    )
    yield Table(
        title="Samples, the largest share first",
        columns=("sample", "share", "norm", "cosine to the others", "label", "loss"),
        rows=tuple(_sample(result, sample) for sample in order[:_MOST_ROWS]),
        note=f"{_MOST_ROWS} of {len(order)} samples" if len(order) > _MOST_ROWS else "",
    )


def loop_plots(found: Findings) -> Iterator[Plot]:
    """Yield alpha over the probed steps, and gradient and activation along the layers."""
    alphas = [
        (probe.step, alpha) for probe in found.next_batch if (alpha := _alpha(probe)) is not None
    ]
    if alphas:
        steps, values = zip(*alphas, strict=True)
        yield Curves(
            title="Alpha of the steps on the batch after them",
            series=(Series(name="alpha", at=steps, values=values),),
            note="-1: no progress; 0: at the minimum along the step; 1: at the mirror point",
        )
    if found.signal:
        yield _ladder(found.signal)


def _ladder(rungs: Sequence[Rung]) -> Ladder:
    numbers = {
        "gradient per sample": [rung.backward for rung in rungs],
        "output (root mean square)": [rung.forward for rung in rungs],
    }
    return Ladder(
        title="Signal along the layers",
        rungs=tuple(rung.name for rung in rungs),
        series=tuple(_series(name, values) for name, values in numbers.items()),
        scale="log",
    )


def _series(name: str, values: Sequence[float]) -> Series:
    known = [(place, value) for place, value in enumerate(values) if not math.isnan(value)]
    return Series(
        name=name,
        at=tuple(place for place, _ in known),
        values=tuple(value for _, value in known),
    )


def _alpha(probe: NextBatchProbe) -> float | None:
    """Alpha of one step; nothing where it is uphill, not finite or below the rounding."""
    small = max(abs(probe.slope), abs(probe.curvature)) <= probe.resolution
    if not probe.is_finite or small or probe.slope >= 0.0:
        return None
    return 2.0 * probe.curvature / -probe.slope - 1.0 if probe.curvature > 0.0 else -1.0


def _sample(result: SamplesResult, sample: int) -> tuple[Cell, ...]:
    given = (result.leave_one_out, result.labels, result.losses)
    others, label, loss = (None if one is None else one[sample].item() for one in given)
    return (
        sample,
        float(result.share[sample]),
        _known(result.norms[sample]),
        others,
        None if label is None else str(label),
        loss,
    )


def _rows(cosines: Tensor) -> tuple[tuple[float | None, ...], ...]:
    return tuple(tuple(_known(value) for value in row) for row in cosines)


def _known(value: Tensor) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number
