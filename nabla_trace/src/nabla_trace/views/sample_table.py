"""The table of the most remarkable samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bars import bar, signed

if TYPE_CHECKING:
    from ..samples_result import SamplesResult

__all__ = ["sample_lines"]

_ROWS = 8
_WIDTH = 12


def sample_lines(result: SamplesResult) -> list[str]:
    """Return head, one line per shown sample, and what is missing."""
    head = (
        f"{result.samples} samples, {result.method}; length of their sum {result.batch_norm:.4g}; "
        f"cancellation {result.cancellation:.3f}"
    )
    covered = f"{len(result.coverage)} parameters covered"
    missing = f", {len(result.missing)} left out" if result.missing else ""
    lines = [head, covered + missing, "", _header(result)]
    order = result.rank("share")[:_ROWS]
    largest = max((float(result.share[sample]) for sample in order), default=1.0)
    for sample in order:
        lines.append(_row(result, sample, largest))
    return lines


def _header(result: SamplesResult) -> str:
    columns = f"{'sample':>6}  {'share':>7}  {'':{_WIDTH}}  {'norm':>9}"
    if result.gram is not None:
        columns += f"  {'others':>6}  {'nearest':>13}"
    return columns + (
        f"  {'label':>5}  {'agrees':>6}" if result.label_agreement is not None else ""
    )


def _row(result: SamplesResult, sample: int, largest: float) -> str:
    share, norm = float(result.share[sample]), float(result.norms[sample])
    line = f"{sample:>6}  {share:>7.2%}  {bar(share / (largest or 1.0), _WIDTH)}  {norm:>9.3g}"
    leave, cosines = result.leave_one_out, result.cosines
    if leave is not None and cosines is not None:
        near = cosines[sample].clone().nan_to_num(-2.0)
        near[sample] = -2.0
        twin = int(near.argmax())
        line += f"  {signed(float(leave[sample])):>6}  {signed(float(near[twin])):>6} at {twin:>3}"
    agreement = result.label_agreement
    if agreement is not None and result.labels is not None:
        line += f"  {int(result.labels[sample]):>5}  {signed(float(agreement[sample])):>6}"
    return line
