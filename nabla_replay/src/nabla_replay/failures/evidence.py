"""Writes the artifact of a run in which a number was not finite.

::

    manifest.json      schema, kind, and the SHA-256 and size of every other file
    issues.json        the verdicts, as in the report
    setting.json       the command, the captured run, the step, the place where it began
    environment.json   versions and device
    reproduction.json  which step of which run shows it: data that the script reads
    reproduction.py    executes that step again; the program is named by whoever runs it

No value of a tensor is stored: the state stays in the run's own checkpoints.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nabla_core.artifacts.manifest import Manifest
from nabla_core.artifacts.writing import ArtifactContent, private_json, write_artifact_folder
from nabla_core.severity import Severity

from .links import link_of
from .reproduction import SCRIPT

if TYPE_CHECKING:
    from nabla_core.issue import Issue
    from nabla_core.report import Report
    from nabla_core.session import Session

    from .links import RunLink

__all__ = ["first_failure", "write_failure"]

_NON_FINITE = ("NUM101", "NUM102", "NUM103", "NUM104", "NUM105")
_LAST = 1 << 62


def first_failure(issues: Sequence[Issue]) -> Issue | None:
    """Return the first verdict about a number that is not finite."""
    found = [one for one in issues if one.rule in _NON_FINITE and one.severity >= Severity.HIGH]
    return min(found, key=lambda one: _LAST if one.step is None else one.step, default=None)


def write_failure(session: Session, report: Report, folder: Path) -> Path | None:
    """Write a new folder under ``folder``, if the run has such a failure.

    The name follows from the verdicts and the setting: the same failure is stored once.

    Args:
        session: that watched.
        report: what it found.
        folder: gets one folder per failure.

    Returns:
        The artifact; ``None`` where every number was finite.

    Raises:
        InputError: it cannot be written.
    """
    failure = first_failure(report.issues)
    if failure is None:
        return None
    link = link_of(session)
    verdicts = [one for one in report.issues if one.severity >= Severity.HIGH]
    documents: dict[str, object] = {
        "issues.json": [one.to_dict() for one in verdicts],
        "setting.json": _setting(report, failure, link),
    }
    identity = hashlib.sha256("".join(map(private_json, documents.values())).encode())
    target = folder / f"nabla-run-{identity.hexdigest()[:8]}"
    documents["environment.json"] = {"versions": report.run.versions, "device": report.run.device}
    step = None if link is None else link.step_of(failure)
    if link is not None and step is not None:
        documents["reproduction.json"] = _reproduction(link, step, verdicts, target)
    about = Manifest(
        kind="run",
        subject=report.run.command.removeprefix("nabla run "),
        seed=report.run.seed or 0,
        fingerprints=tuple(one.fingerprint for one in verdicts),
    )
    texts = {"reproduction.py": SCRIPT} if "reproduction.json" in documents else {}
    content = ArtifactContent(about=about, documents=documents, texts=texts)
    return write_artifact_folder(target, content)


def _setting(report: Report, failure: Issue, link: RunLink | None) -> dict[str, object]:
    """What failed where; the run is named by its folder only, whose path is this machine's."""
    step = None if link is None else link.step_of(failure)
    return {
        "command": report.run.command,
        "steps": report.run.steps,
        "run": None if link is None else link.folder.name,
        "rank": None if link is None else link.rank,
        "step": failure.step,
        "step_of_run": step,
        "rule": failure.rule,
        "where": None if failure.where is None else failure.where.to_dict(),
    }


def _reproduction(
    link: RunLink, step: int, verdicts: Sequence[Issue], target: Path
) -> dict[str, object]:
    """What the script needs; the run is named from the artifact on: both may be moved together."""
    rules = [one.rule for one in verdicts if one.rule in _NON_FINITE]
    return {
        "run": os.path.relpath(link.folder, target),
        "rank": link.rank,
        "step": step,
        "rules": sorted(dict.fromkeys(rules)),
    }
