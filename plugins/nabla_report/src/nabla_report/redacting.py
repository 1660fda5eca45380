"""A report without secrets, home folders, user and host names: what leaves the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import TypeVar, cast

from nabla_core.redaction import redact
from nabla_core.report import Cause, Report

__all__ = ["redacted"]

T = TypeVar("T")

_redact = lru_cache(maxsize=4096)(redact)


def redacted(report: Report) -> Report:
    """Return the report with every text redacted; causes still point at their issues.

    A fingerprint hashes the place of an issue, so that of a redacted place may differ. Redacting
    twice changes nothing: a report and its stored form get the same fingerprints.
    """
    clean = _clean(report)
    moved = {
        old.fingerprint: new.fingerprint
        for old, new in zip(report.issues, clean.issues, strict=True)
    }
    causes = tuple(_moved(cause, moved) for cause in clean.causes)
    return replace(clean, causes=causes)


def _moved(cause: Cause, moved: Mapping[str, str]) -> Cause:
    return replace(cause, chain=tuple(moved.get(link, link) for link in cause.chain))


def _clean(value: T) -> T:
    if isinstance(value, str):
        return cast("T", _redact(value))
    if isinstance(value, tuple):
        if value and isinstance(value[0], (int, float)):
            return value  # the numbers of a plot
        return cast("T", tuple(map(_clean, value)))
    if isinstance(value, Mapping):
        return cast("T", {_clean(key): _clean(item) for key, item in value.items()})
    if is_dataclass(value) and not isinstance(value, type):
        return cast(
            "T",
            replace(value, **{f.name: _clean(getattr(value, f.name)) for f in fields(value)}),
        )
    return value
