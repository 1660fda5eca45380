"""Reading a stored JSON report as hostile input: sizes, types and versions are checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar, cast, get_args

from .errors import InputError, ReportFormatError
from .files import read_text
from .issue import Issue, Location, Phase, Reproduction, evidence_from_json
from .numbers import number_from_json
from .plots_reader import plots_from_json
from .problem import Problem
from .report import (
    SCHEMA_VERSION,
    AllowedIssue,
    Cause,
    NotEvaluated,
    Report,
    RunInfo,
    Section,
)
from .severity import Severity

__all__ = ["read_report"]

T = TypeVar("T")
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, InputError)
Table = Mapping[str, object]


def read_report(path: Path) -> Report:
    """Return the report stored in ``path``; any 1.x schema is read.

    Raises:
        ReportFormatError: it is no nabla report, is damaged, or has another major schema version.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # also numbers of too many digits
        raise ReportFormatError(f"{path}: is not valid JSON: {error}") from error
    except InputError as error:
        raise ReportFormatError(str(error)) from error
    if not isinstance(content, dict) or "schema_version" not in content:
        raise ReportFormatError(f"{path}: is no nabla report: it has no schema_version")
    major = str(content["schema_version"]).partition(".")[0]
    if major != SCHEMA_VERSION.partition(".")[0]:
        raise ReportFormatError(
            f"{path}: has schema {content['schema_version']}, this version reads "
            f"{SCHEMA_VERSION.partition('.')[0]}.x; use the nabla that wrote it"
        )
    try:
        return _report(content)
    except _DAMAGE as error:
        raise ReportFormatError(f"{path}: is a damaged report: {error}") from error


def _report(content: Table) -> Report:
    issues = _each(content, "issues", _issue)
    return Report(
        run=_run(_table(content, "run")),
        issues=issues,
        rules_used=_texts(content, "rules_used"),
        not_evaluated=_each(
            content,
            "not_evaluated",
            lambda t: NotEvaluated(rule=_text(t, "rule"), reason=_text(t, "reason")),
        ),
        allowed=_each(content, "allowed", _allowed),
        stale_baseline=_texts(content, "stale_baseline"),
        causes=_linked(_each(content, "causes", _cause), content, issues),
        sections=_each(
            content,
            "sections",
            lambda t: Section(
                title=_text(t, "title"),
                lines=_texts(t, "lines"),
                plots=plots_from_json(t.get("plots", [])),
            ),
        ),
        problems=_each(content, "problems", _problem),
        dropped={name: int(_number(value)) for name, value in _table(content, "dropped").items()},
        fail_on=Severity.parse(_text(content, "fail_on", "high")),
        exit_code=int(_number(content.get("exit_code", 0))),
    )


def _run(table: Table) -> RunInfo:
    seed = table.get("seed")
    commit = table.get("git_commit")
    return RunInfo(
        command=_text(table, "command"),
        started_utc=_text(table, "started_utc"),
        duration_s=_number(table.get("duration_s", 0.0)),
        steps=int(_number(table.get("steps", 0))),
        versions={name: str(value) for name, value in _table(table, "versions").items()},
        device=_text(table, "device"),
        seed=None if seed is None else int(_number(seed)),
        git_commit=None if commit is None else str(commit),
        source=_text(table, "source"),
    )


def _issue(table: Table) -> Issue:
    phase, place = table.get("phase"), table.get("where")
    if phase is not None and phase not in get_args(Phase):
        raise ValueError(f"unknown phase {phase!r}")
    return Issue(
        rule=_text(table, "rule"),
        name=_text(table, "name"),
        severity=Severity.parse(_text(table, "severity")),
        message=_text(table, "message"),
        where=_location(place) if isinstance(place, dict) else None,
        step=_whole(table.get("step")),
        last_step=_whole(table.get("last_step")),
        phase=cast("Phase | None", phase),
        evidence={
            name: evidence_from_json(value) for name, value in _table(table, "evidence").items()
        },
        limitation=_text(table, "limitation"),
        suggestion=_text(table, "suggestion"),
        confidence=_number(table.get("confidence", 1.0)),
        count=int(_number(table.get("count", 1))),
        plugin=_text(table, "plugin"),
        reproduction=_reproduction(table.get("reproduction")),
        artifact=None if table.get("artifact") is None else _text(table, "artifact"),
        related=_texts(table, "related"),
    )


def _location(table: Table) -> Location:
    whole = {"line", "rank", "sample"}
    known = {part.name for part in fields(Location)}
    values = {
        name: _whole(value) if name in whole else str(value)
        for name, value in table.items()
        if name in known
    }
    return Location(**values)  # type: ignore[arg-type]


def _reproduction(value: object) -> Reproduction | None:
    if not isinstance(value, dict):
        return None
    command, script = value.get("command"), value.get("script")
    return Reproduction(
        seed=_whole(value.get("seed")),
        command=None if command is None else str(command),
        script=None if script is None else str(script),
    )


def _allowed(table: Table) -> AllowedIssue:
    return AllowedIssue(
        issue=_issue(_table(table, "issue")),
        reason=_text(table, "reason"),
        source=_text(table, "source"),
    )


def _cause(table: Table) -> Cause:
    place = table.get("where")
    return Cause(
        rule=_text(table, "rule"),
        chain=_texts(table, "chain"),
        score=_number(table.get("score", 0.0)),
        statement=_text(table, "statement"),
        tests=_texts(table, "tests"),
        where=_location(place) if isinstance(place, dict) else None,
        step=_whole(table.get("step")),
        supports=_texts(table, "supports"),
        contradicts=_texts(table, "contradicts"),
    )


def _linked(
    causes: tuple[Cause, ...], content: Table, issues: tuple[Issue, ...]
) -> tuple[Cause, ...]:
    """Let the chains point at the issues again: a place that was redacted hashes differently."""
    stored = _each(content, "issues", lambda table: str(table.get("fingerprint", "")))
    moved = {old: issue.fingerprint for old, issue in zip(stored, issues, strict=True)}
    return tuple(
        replace(cause, chain=tuple(moved.get(link, link) for link in cause.chain))
        for cause in causes
    )


def _problem(table: Table) -> Problem:
    return Problem(
        rule=_text(table, "rule"),
        plugin=_text(table, "plugin"),
        message=_text(table, "message"),
        hint=_text(table, "hint"),
    )


def _each(table: Table, key: str, make: Callable[[Table], T]) -> tuple[T, ...]:
    items = table.get(key, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{key} is not a list of objects")
    return tuple(make(item) for item in items)


def _texts(table: Table, key: str) -> tuple[str, ...]:
    items = table.get(key, [])
    if not isinstance(items, list):
        raise ValueError(f"{key} is not a list")
    return tuple(str(item) for item in items)


def _table(table: Table, key: str) -> Table:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise ValueError(f"{key} is not an object")
    return found


def _text(table: Table, key: str, default: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    return value


def _number(value: object) -> float:
    return number_from_json(value)


def _whole(value: object) -> int | None:
    return None if value is None else int(_number(value))
