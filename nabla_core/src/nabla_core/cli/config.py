"""``nabla config``: the effective settings and where each comes from."""

from __future__ import annotations

import json

import click

from ..config import Setting
from ..severity import Severity
from .state import ShellState

__all__ = ["config_command"]


@click.command("config")
@click.option("--format", "form", type=click.Choice(["console", "json"]), default="console")
@click.option("-o", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting.")
@click.pass_obj
def config_command(state: ShellState, form: str, settings: tuple[str, ...]) -> int:
    """Show every effective setting and where it comes from."""
    config = state.config(settings)
    config.selection(state.host.registry)
    if form == "json":
        rows = [
            {"table": row.table, "key": row.key, "value": _plain(row.value), "source": row.source}
            for row in config.settings
        ]
        click.echo(json.dumps(rows, indent=2))
        return state.plugin_exit_code(0)
    table = None
    for row in config.settings:
        if row.table != table:
            table = row.table
            click.echo(f"[tool.nabla.{table}]" if table else "[tool.nabla]")
        click.echo(_line(row))
    return state.plugin_exit_code(0)


def _line(row: Setting) -> str:
    return f"{f'{row.key} = {json.dumps(_plain(row.value))}':<40} # {row.source}"


def _plain(value: object) -> object:
    if isinstance(value, Severity):
        return value.label
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
