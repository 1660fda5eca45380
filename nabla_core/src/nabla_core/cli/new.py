"""``nabla plugin new NAME``: write a rule package that works, with a test that passes."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ..errors import UsageError
from ..files import write_text
from ..registry import RESERVED_PREFIXES
from .state import ShellState

__all__ = ["plugin_group"]

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@click.group("plugin")
def plugin_group() -> None:
    """Start a new plugin."""


@plugin_group.command("new")
@click.argument("name")
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path(), help="Where to write it."
)
@click.option("--prefix", help="Three or four capitals of your rule IDs.")
@click.pass_obj
def new(state: ShellState, name: str, folder: Path, prefix: str | None) -> int:
    """Write the distribution NAME: one rule, its detector and a test, in 30 lines."""
    from ..plugin_template import files_for

    if not _NAME.fullmatch(name):
        raise UsageError(
            f"plugin new {name}: use lower-case words joined by dashes, like acme-rules"
        )
    capitals = _prefix(state, name, prefix)
    target = folder / name
    if target.exists():
        raise UsageError(f"{target} exists; choose another name or --folder")
    for path, text in files_for(name, capitals).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(target / path, text)
        click.echo(target / path)
    click.echo(
        f"\nnext: pip install -e {target} && nabla rule {capitals}101 && pytest {target}", err=True
    )
    return 0


def _prefix(state: ShellState, name: str, wanted: str | None) -> str:
    capitals = wanted or re.sub(r"[^a-z]", "", name)[:3].upper().ljust(3, "X")
    if not re.fullmatch(r"[A-Z]{3,4}", capitals):
        raise UsageError(f"--prefix {capitals}: needs three or four capitals")
    owner = RESERVED_PREFIXES.get(capitals) or state.host.registry.owner_of(capitals + "000")
    if owner:
        raise UsageError(f"prefix {capitals} belongs to {owner!r}; choose another with --prefix")
    return capitals
