"""``nabla compare OLD NEW``: what is new, fixed and changed between two stored reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nabla_core.errors import UsageError
from nabla_core.severity import Severity

if TYPE_CHECKING:
    from nabla_core.cli.state import ShellState

    from .comparing import Comparison

__all__ = ["compare"]

_SEVERITIES = click.Choice([severity.label for severity in Severity])


@click.command("compare")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="FMT[=PATH]",
    help="console, html, json or markdown; repeatable; with =PATH into a file.",
)
@click.option(
    "--fail-on",
    type=_SEVERITIES,
    help="Severity from which a new issue makes the exit code 1; default: that of NEW.",
)
@click.pass_obj
def compare(
    state: ShellState, old: Path, new: Path, formats: tuple[str, ...], fail_on: str | None
) -> int:
    """Say what is new, fixed and changed in the report NEW since the report OLD.

    Both were written by --format json=FILE. The same rule at the same place is the same issue,
    whatever its step, line and value.

    Exits with 1 when there are new issues at or above --fail-on, with 2 when a file is no report.
    """
    from .comparing import compare as compared

    wanted = [_delivery(text) for text in formats] or [("console", None)]
    comparison = compared(old, new, fail_on=fail_on)
    for name, path in wanted:
        _deliver(state, comparison, name, path)
    return comparison.exit_code


def _delivery(text: str) -> tuple[str, Path | None]:
    from nabla_core.binder import closest
    from nabla_core.files import check_writable

    from .comparison_text import FORMATS

    name, _, path = text.partition("=")
    if name not in FORMATS:
        names = sorted(FORMATS)
        raise UsageError(f"--format {name}: choose one of {', '.join(names)}{closest(name, names)}")
    if path:
        check_writable(Path(path))
    return name, Path(path) if path else None


def _deliver(state: ShellState, comparison: Comparison, name: str, path: Path | None) -> None:
    from nabla_core.files import write_text

    from .comparison_text import FORMATS

    if path is None:
        click.echo(FORMATS[name](comparison, state.style()), nl=False)
    else:
        write_text(path, FORMATS[name](comparison, type(state.style())()))
