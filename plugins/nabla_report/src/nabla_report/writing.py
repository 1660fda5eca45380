"""A report as text in any format, and the stored reports that are taken as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

from nabla_core.errors import UsageError
from nabla_core.files import write_text
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.report import Report, Section
from nabla_core.report_reader import read_report
from nabla_core.reporters.render import known_format, render
from nabla_core.reporters.style import Style
from nabla_core.severity import Severity

__all__ = ["ReportLike", "dumps", "html", "junit", "markdown", "report_of", "sarif"]


@runtime_checkable
class Shown(Protocol):
    """A result that is no report, but knows what one would show of it."""

    issues: tuple[Issue, ...]
    fail_on: Severity

    @property
    def rules_used(self) -> Sequence[str]:
        """IDs of the rules that judged it."""

    def sections(self) -> Iterable[Section]:
        """Return what there is to see."""


ReportLike = Report | Shown | str | Path
"""A finished report, a result that can be shown, or the file that ``--format json=FILE`` wrote."""


def report_of(source: ReportLike) -> Report:
    """Return a report, read from its file if ``source`` is one, or made of a result.

    Raises:
        UsageError: it is neither, e.g. the result of a check.
        ReportFormatError: the file is no nabla report.
    """
    if isinstance(source, Report):
        return source
    if isinstance(source, (str, PathLike)):
        return read_report(Path(source))
    if isinstance(source, Shown):
        failed = any(issue.severity >= source.fail_on for issue in source.issues)
        return Report(
            issues=tuple(source.issues),
            rules_used=tuple(source.rules_used),
            sections=tuple(source.sections()),
            fail_on=source.fail_on,
            exit_code=int(failed),
        )
    raise UsageError(
        f"{type(source).__name__} is no report: give what monitor.report(), run.finish() or "
        "nabla.lint(...) returned, or the file that --format json=FILE wrote; the command check "
        "writes its own by --format html=FILE"
    )


def dumps(report: ReportLike, format: str = "json") -> str:
    """Return a report as text.

    Args:
        report: a finished report, or the file of a stored one.
        format: any format of an installed plugin: console, json, github, html, junit, sarif,
            markdown.

    Raises:
        UsageError: nobody has this format.
        ReportFormatError: the file is no nabla report.
    """
    host = default_host()
    return render(host, known_format(host, format), report_of(report), Style())


def html(report: ReportLike, path: str | Path | None = None) -> str:
    """Return a report as one self-contained HTML page, and write it to ``path`` if there is one.

    Raises:
        ReportFormatError: the file is no nabla report.
        InputError: ``path`` cannot be written.
    """
    return _written(report, "html", path)


def junit(report: ReportLike, path: str | Path | None = None) -> str:
    """Return a report as JUnit XML, and write it to ``path`` if there is one.

    Raises:
        ReportFormatError: the file is no nabla report.
        InputError: ``path`` cannot be written.
    """
    return _written(report, "junit", path)


def sarif(report: ReportLike, path: str | Path | None = None) -> str:
    """Return a report as a SARIF 2.1.0 log, and write it to ``path`` if there is one.

    Raises:
        ReportFormatError: the file is no nabla report.
        InputError: ``path`` cannot be written.
    """
    return _written(report, "sarif", path)


def markdown(report: ReportLike, path: str | Path | None = None) -> str:
    """Return a report as Markdown, and write it to ``path`` if there is one.

    Raises:
        ReportFormatError: the file is no nabla report.
        InputError: ``path`` cannot be written.
    """
    return _written(report, "markdown", path)


def _written(report: ReportLike, format: str, path: str | Path | None) -> str:
    text = dumps(report, format)
    if path is not None:
        write_text(Path(path), text)
    return text
