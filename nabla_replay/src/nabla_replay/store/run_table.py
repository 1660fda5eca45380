"""The captured runs of this folder as ``nabla runs`` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from nabla_core.reporters.style import printable
from nabla_core.runs import RunListRequest, RunTable

from .listing import RunSummary, captured_runs

__all__ = ["list_runs"]

_ROOT = ".nabla/runs"
_HEAD = ("run", "steps", "last loss", "checkpoints", "state")


def list_runs(request: RunListRequest) -> RunTable:
    """Return the runs under ``.nabla/runs`` of the present folder, the latest last."""
    found = captured_runs(Path(_ROOT))[-request.last :]
    return RunTable(lines=tuple(_lines(found)), records=tuple(run.to_dict() for run in found))


def _lines(runs: Sequence[RunSummary]) -> Iterator[str]:
    if not runs:
        yield f"none under {_ROOT}; nabla run --capture SCRIPT or nabla.capture keep one there"
        return
    rows = [_HEAD, *(_row(run) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(padded).rstrip()


def _row(run: RunSummary) -> tuple[str, str, str, str, str]:
    name = printable(run.run_id)
    if run.status == "unreadable":
        return name, "-", "-", "-", printable(run.reason).replace("\n", " ")
    steps = "none" if run.first_step is None else f"{run.first_step} to {run.last_step}"
    loss = "-" if run.last_loss is None else f"{run.last_loss:.6g}"
    notes = [str(run.status)]
    if run.segments > 1:
        notes.append(f"{run.segments} segments")
    if run.ranks > 1:
        notes.append(f"{run.ranks} ranks")
    if run.damage:
        notes.append(f"{run.damage} damaged lines")
    return name, steps, loss, str(run.checkpoints), ", ".join(notes)
