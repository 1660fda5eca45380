"""``nabla explain``: what may have caused the findings of a report."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["explain"]

EXIT_NOTHING_CHECKED = 4


@click.command("explain")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--kind", help="Only hypotheses about this, e.g. vanishing_gradients.")
@click.option("--timeline", is_flag=True, help="Also what happened, in the order of time.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["console", "json", "mermaid"]),
    default="console",
    show_default=True,
)
def explain(report: Path, kind: str | None, timeline: bool, form: str) -> int:
    """Order the findings stored in REPORT (written by --format json=REPORT) into causes.

    Exits with 0 when there is a hypothesis, with 4 when there is nothing to explain.
    """
    from .explaining import explain as explain_report

    explanation = explain_report(report, kind)
    if form == "json":
        click.echo(json.dumps(explanation.to_dict(), indent=2))
    elif form == "mermaid":
        click.echo(explanation.to_mermaid(), nl=False)
    else:
        click.echo(explanation.format())
        if timeline:
            click.echo("\ntimeline")
            for transition in explanation.timeline():
                click.echo(f"  {transition}")
    return 0 if explanation else EXIT_NOTHING_CHECKED
