"""Keeping the runs of one command, and telling how they stand among earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nabla_core.errors import InputError
from nabla_core.report import Section

from ..options import DiagnoseOptions
from .comparing import compare
from .store import HistoryStore

if TYPE_CHECKING:
    from nabla_core.config import Config

    from ..linting import LintedRun

__all__ = ["record"]


def record(runs: Sequence[LintedRun], config: Config) -> list[Section]:
    """Keep the runs and return how each stands among the earlier runs of its project.

    Nothing is kept if ``history_runs`` is 0. A folder that cannot be written is told on standard
    error: the verdict does not depend on it.
    """
    last = config.options(DiagnoseOptions).history_runs
    if not last:
        return []
    store = HistoryStore.here()
    lines: list[str] = []
    earlier = store.load()
    for run in runs:
        summary = run.summary
        peers = [other for other in earlier if other.project == summary.project]
        standings = compare(summary, peers, last)
        prefix = f"{run.label}: " if len(runs) > 1 else ""
        lines += [prefix + standing.line() for standing in standings]
    try:
        for run in runs:
            if run.summary.rows:
                store.keep(run.summary)
    except InputError as error:
        click.echo(f"nabla: the history is not kept: {error}", err=True)
    return [Section(title="Beside earlier runs", lines=tuple(lines))] if lines else []
