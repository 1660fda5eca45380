"""``nabla runs``: what was judged and what was captured in this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import click

from ..declarations import RunList
from ..errors import UsageError
from ..runs import RunListRequest, RunTable
from .state import ShellState

__all__ = ["runs"]


@click.command("runs")
@click.option("--last", type=click.IntRange(min=1), default=20, help="How many runs; default 20.")
@click.option("--all", "every", is_flag=True, help="Runs of all projects, not only of this one.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def runs(state: ShellState, last: int, every: bool, as_json: bool) -> int:
    """Show the runs of this folder, the latest last."""
    request = RunListRequest(last=last, every=every)
    tables = {store.name: _ask(store, request) for store in state.host.run_lists}
    if not tables:
        raise UsageError(
            "runs: no installed plugin keeps runs; nabla[diagnose] keeps those that it judges, "
            "nabla[replay] those that it captures"
        )
    if as_json:
        found = {name: table.records for name, table in tables.items()}
        click.echo(json.dumps(found, indent=1))
        return state.plugin_exit_code(0)
    for number, (name, table) in enumerate(tables.items()):
        click.echo(f"{'' if number == 0 else chr(10)}{name}")
        for line in table.lines:
            click.echo(f"  {line}")
    return state.plugin_exit_code(0)


def _ask(store: RunList, request: RunListRequest) -> RunTable:
    list_runs = cast("Callable[[RunListRequest], RunTable]", store.load())
    return list_runs(request)
