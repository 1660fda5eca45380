"""Options that every command with a report shares, and the delivery of that report."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from ..baseline import Baseline
from ..errors import UsageError
from ..files import check_writable, rank_path, write_text
from ..session import Session, SessionOptions
from ..severity import Severity
from .state import ShellState

if TYPE_CHECKING:
    from ..config import Config
    from ..report import Report

__all__ = ["Delivery", "ReportRequest", "reporting"]

F = TypeVar("F", bound=Callable[..., object])
EXIT_NOTHING_CHECKED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One format and where it goes (``None``: the standard stream)."""

    format: str
    path: Path | None = None


@dataclass(kw_only=True)
class ReportRequest:
    """What the user wants to see and where.

    Attributes:
        state: options of the shell.
        deliveries: formats with their targets.
        write_baseline: file to write the found issues to.
        config: effective configuration.
    """

    state: ShellState
    deliveries: tuple[Delivery, ...]
    config: Config
    write_baseline: Path | None = None

    def session(self, command: str, seed: int | None = None) -> Session:
        """Return a new session under this configuration."""
        core = self.config.core
        options = SessionOptions(
            max_issues=core.max_issues, max_events=core.max_events, command=command, seed=seed
        )
        return Session(host=self.state.host, config=self.config, options=options)

    def deliver(self, report: Report, stream: TextIO | None = None) -> int:
        """Write the report in every wanted format and return the exit code.

        Args:
            report: a finished report.
            stream: where text goes that has no file; default stdout.
        """
        from ..reporters.render import render

        stream = stream or sys.stdout
        if (
            all(delivery.path is not None for delivery in self.deliveries)
            and self.state.verbose >= 0
        ):
            self._show(render(self.state.host, "console", report, self.state.style(stream)), stream)
        for delivery in self.deliveries:
            if delivery.path is None:
                style = self.state.style(stream)
                self._show(render(self.state.host, delivery.format, report, style), stream)
            else:
                plain = type(self.state.style(stream))()
                write_text(delivery.path, render(self.state.host, delivery.format, report, plain))
        if self.write_baseline is not None:
            Baseline.of(
                [*report.issues, *(entry.issue for entry in report.allowed)], self.config.baseline
            ).write(self.write_baseline)
        self.state.show_problems(report.problems)
        return self.exit_code(report)

    def exit_code(self, report: Report) -> int:
        """Return 0, 1 (issues), 4 (nothing was checked) or 5 (strict plugins)."""
        code = report.exit_code
        if code == 0 and not report.rules_used:
            code = EXIT_NOTHING_CHECKED
        return self.state.plugin_exit_code(code)

    @staticmethod
    def _show(text: str, stream: TextIO) -> None:
        stream.write(text)
        stream.flush()


def reporting(function: F) -> F:
    """Add the shared options to a click command; they arrive as ``request``."""

    @functools.wraps(function)
    @click.pass_obj
    def wrapper(state: ShellState, /, **arguments: object) -> object:
        raw = {name: arguments.pop(name) for name in _NAMES}
        return function(request=_request(state, raw), **arguments)

    decorated: Callable[..., object] = wrapper
    for add in reversed(_OPTIONS):
        decorated = add(decorated)
    return decorated  # type: ignore[return-value]


_SEVERITIES = click.Choice([severity.label for severity in Severity])
_OPTIONS = (
    click.option(
        "--format",
        "formats",
        multiple=True,
        metavar="FMT[=PATH]",
        help="Report format, repeatable; with =PATH into a file.",
    ),
    click.option("--output", type=click.Path(path_type=Path), help="File for the report."),
    click.option("--fail-on", type=_SEVERITIES, help="Severity from which the exit code is 1."),
    click.option("--select", help="Rules to run: IDs, prefixes, names, comma-separated."),
    click.option("--extend-select", help="Rules to run besides the selected ones."),
    click.option("--ignore", help="Rules not to run."),
    click.option("--preview", is_flag=True, help="Also run rules that are in preview."),
    click.option("--baseline", help="File with known issues."),
    click.option(
        "--write-baseline",
        type=click.Path(path_type=Path),
        help="Write what was found to a baseline file.",
    ),
    click.option(
        "-o",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting, e.g. audit.steps=5.",
    ),
)
_NAMES = (
    "formats",
    "output",
    "fail_on",
    "select",
    "extend_select",
    "ignore",
    "preview",
    "baseline",
    "write_baseline",
    "settings",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """Settings of the core that have an option of their own."""

    values: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> _Named:
        keys = ("fail_on", "select", "extend_select", "ignore", "baseline")
        values = {key.replace("_", "-"): raw[key] for key in keys if raw[key] is not None}
        if raw["preview"]:
            values["preview"] = True
        return cls(values=values)


def _request(state: ShellState, raw: Mapping[str, object]) -> ReportRequest:
    formats, output, target = raw["formats"], raw["output"], raw["write_baseline"]
    settings = raw["settings"] if isinstance(raw["settings"], tuple) else ()
    deliveries = _deliveries(
        state,
        formats if isinstance(formats, tuple) else (),
        output if isinstance(output, Path) else None,
    )
    write_baseline = target if isinstance(target, Path) else None
    for path in (*(delivery.path for delivery in deliveries), write_baseline):
        if path is not None:
            check_writable(path)
    config = state.config(settings, _Named.of(raw).values)
    config.selection(state.host.registry)  # an unknown rule is told before any work is done
    return ReportRequest(
        state=state,
        deliveries=deliveries,
        config=config,
        write_baseline=None if write_baseline is None else rank_path(write_baseline),
    )


def _deliveries(
    state: ShellState, formats: tuple[str, ...], output: Path | None
) -> tuple[Delivery, ...]:
    from ..reporters.render import format_for, known_format

    found = []
    for text in formats:
        name, _, path = text.partition("=")
        found.append(
            Delivery(
                format=known_format(state.host, name), path=rank_path(Path(path)) if path else None
            )
        )
    if output is not None:
        loose = [delivery for delivery in found if delivery.path is None]
        if len(loose) > 1:
            raise UsageError("--output takes one format; use --format FMT=PATH for several")
        name = loose[0].format if loose else format_for(state.host, output)
        found = [delivery for delivery in found if delivery.path is not None]
        found.append(Delivery(format=name, path=rank_path(output)))
    return tuple(found)
