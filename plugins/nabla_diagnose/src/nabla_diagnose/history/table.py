"""Summaries as lines for a person."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from nabla_core.runs import RunListRequest, RunTable

from .store import HistoryStore, project_of
from .summary import RunSummary

__all__ = ["list_runs", "table_lines"]

_MAX_SOURCE = 44


def list_runs(request: RunListRequest) -> RunTable:
    """Return the runs that were judged in this folder."""
    project = None if request.every else project_of(Path.cwd())
    found = HistoryStore.here().load(project)[-request.last :]
    return RunTable(lines=tuple(table_lines(found)), records=tuple(run.to_dict() for run in found))


def table_lines(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield a table, or one line that says how runs get into it."""
    if not runs:
        yield "no runs yet; nabla lint LOG keeps a summary of each run it judges"
        return
    yield f"{'logged':<16}  {'rows':>8}  {'first':>10}  {'best':>10}  {'last':>10}  run"
    for run in runs:
        source = run.source
        if len(source) > _MAX_SOURCE:
            source = f"...{source[3 - _MAX_SOURCE :]}"
        found = f"  [{', '.join(run.rules)}]" if run.rules else ""
        yield (
            f"{run.logged_utc[:16].replace('T', ' '):<16}  {run.rows:>8}  {_shown(run.first_loss)}"
            f"  {_shown(run.best_loss)}  {_shown(run.last_loss)}  {source}{found}"
        )


def _shown(loss: float) -> str:
    return f"{loss:>10.4g}" if math.isfinite(loss) else f"{loss!s:>10}"
