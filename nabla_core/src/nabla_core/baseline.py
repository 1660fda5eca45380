"""A baseline file: issues that are known and accepted, so that only new ones fail a run.

The file is TOML, one table per issue, made to be edited by hand and reviewed::

    [[issue]]
    fingerprint = "0123456789abcdef"
    rule = "AUD201"
    where = "module head"
    reason = "the head is trained in phase two"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigError, InputError
from .files import read_text, write_text

if TYPE_CHECKING:
    from .issue import Issue

__all__ = ["Baseline", "BaselineEntry"]

_NO_REASON = "known when the baseline was written"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEntry:
    """One accepted issue."""

    fingerprint: str
    rule: str
    where: str = ""
    reason: str = _NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Accepted issues by fingerprint."""

    entries: Mapping[str, BaselineEntry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a baseline file.

        Raises:
            ConfigError: the file is missing, is no TOML, or an entry lacks its fingerprint or rule.
        """
        try:
            tables = tomllib.loads(read_text(path)).get("issue", [])
        except InputError as error:
            raise ConfigError(f"baseline {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"baseline {path}: is not valid TOML: {error}") from error
        entries = {}
        for number, table in enumerate(tables, start=1):
            if not isinstance(table, dict) or not all(
                isinstance(table.get(key), str) for key in ("fingerprint", "rule")
            ):
                raise ConfigError(f"baseline {path}: entry {number} needs a fingerprint and a rule")
            texts = {key: str(value) for key, value in table.items()}
            entries[texts["fingerprint"]] = BaselineEntry(
                fingerprint=texts["fingerprint"],
                rule=texts["rule"],
                where=texts.get("where", ""),
                reason=texts.get("reason", _NO_REASON),
            )
        return cls(entries=entries)

    @classmethod
    def of(cls, issues: Iterable[Issue], before: Baseline | None = None) -> Baseline:
        """Return a baseline of ``issues``; reasons that ``before`` states are kept."""
        known = before.entries if before else {}
        made = [
            known.get(issue.fingerprint)
            or BaselineEntry(
                fingerprint=issue.fingerprint, rule=issue.rule, where=str(issue.where or "")
            )
            for issue in issues
        ]
        return cls(entries={entry.fingerprint: entry for entry in made})

    def stale(self, seen: Iterable[str]) -> tuple[str, ...]:
        """Return a line for every entry whose fingerprint was not seen."""
        seen = set(seen)
        return tuple(
            f"{entry.rule} {entry.where} ({entry.fingerprint})".replace("  ", " ")
            for fingerprint, entry in self.entries.items()
            if fingerprint not in seen
        )

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            InputError: it cannot be written.
        """
        lines = ["# Issues that are known and accepted. State the reason of each."]
        for entry in sorted(self.entries.values(), key=lambda item: (item.rule, item.fingerprint)):
            lines += ["", "[[issue]]"]
            for key in ("fingerprint", "rule", "where", "reason"):
                # a JSON string of this kind is a TOML basic string too
                lines.append(f"{key} = {json.dumps(getattr(entry, key), ensure_ascii=False)}")
        write_text(path, "\n".join(lines) + "\n")
