"""``nabla explain``: what may have caused the findings of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nabla_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["explain"]

EXIT_NOTHING_CHECKED = 4


class _Flags(TypedDict):
    run: Path | None
    build: str | None
    confirm: bool


@click.command("explain")
@click.argument("found", metavar="REPORT|RUN", type=click.Path(path_type=Path))
@click.option("--kind", help="Only hypotheses about this, e.g. vanishing_gradients.")
@click.option("--timeline", is_flag=True, help="Also what happened, in the order of time.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["console", "json", "mermaid"]),
    default="console",
    show_default=True,
)
@click.option("--run", type=click.Path(path_type=Path), help="Captured run of the same steps.")
@click.option(
    "--build",
    metavar="TARGET",
    help="Function that makes the program of the run; file.py:function or module:function.",
)
@click.option(
    "--confirm", is_flag=True, help="Replay the run with one thing changed to test each cause."
)
def explain(
    found: Path, kind: str | None, timeline: bool, form: str, **flags: Unpack[_Flags]
) -> int:
    """Order findings into causes: those stored in REPORT, or what is wrong in a captured RUN.

    REPORT was written by --format json=REPORT; RUN is a folder that nabla.capture wrote. The
    program comes from --build, never from the run.

    Exits with 0 when there is a hypothesis, with 4 when there is nothing to explain.
    """
    from .drawing import for_a_terminal
    from .explaining import explain as explain_report

    build, run = flags["build"], flags["run"]
    explanation = explain_report(
        found,
        kind,
        run=run,
        build=None if build is None else _factory(build, run or found),
        confirm=flags["confirm"],
    )
    if form == "json":
        click.echo(json.dumps(explanation.to_dict(), indent=2))
    elif form == "mermaid":
        click.echo(explanation.to_mermaid(), nl=False)
    else:
        click.echo(explanation.format())
        if timeline:
            click.echo("\ntimeline")
            lines = (f"  {transition}" for transition in explanation.timeline())
            click.echo(for_a_terminal("\n".join(lines)))
    return 0 if explanation else EXIT_NOTHING_CHECKED


def _factory(target: str, run: Path) -> Callable[[], object]:
    try:
        from nabla_replay.building import load_factory
    except ModuleNotFoundError as error:
        raise UsageError(
            f'--build needs {error.name}, which is not installed; run: pip install "nabla[replay]"'
        ) from error
    return load_factory(target, run)
