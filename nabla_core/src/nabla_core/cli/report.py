"""``nabla report FILE``: show a stored report again, in any format."""

from __future__ import annotations

from pathlib import Path

import click

from .options import ReportRequest, reporting

__all__ = ["report_command"]


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@reporting
def report_command(request: ReportRequest, file: Path) -> int:
    """Show the report stored in FILE (written by --format json=FILE).

    Exits like the run that wrote it.
    """
    from ..report_reader import read_report

    report = read_report(file)
    request.deliver(report)
    return report.exit_code
