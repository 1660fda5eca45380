"""Starts and finishes the capture of a script under ``nabla run``; free of torch until then.

When a session has ended, the evidence of a number that was not finite is kept in an artifact.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .capture_settings import CaptureSettings
from .wording import shown_from

if TYPE_CHECKING:
    from nabla_core.report import Report
    from nabla_core.session import Session

    from .capturing.process import ProcessCapture

__all__ = ["finish_capture", "start_capture"]

_RUN = "nabla run"
_ARTIFACTS = ".nabla/artifacts"
_captures: WeakKeyDictionary[Session, ProcessCapture] = WeakKeyDictionary()
_folders: WeakKeyDictionary[Session, tuple[Path, Path]] = WeakKeyDictionary()
"""Where each session began, and where its evidence is kept: a program may change its folder."""


def start_capture(session: Session) -> None:
    """Capture the script that ``session`` watches, if ``[tool.nabla.replay]`` asks for it."""
    if CaptureSettings not in session.host.options.values():
        return
    settings = session.options(CaptureSettings)
    is_script = session.bounds.command.startswith(_RUN)
    is_captured = settings.capture and is_script  # inside a program, nabla.capture says what
    if settings.artifact_dir or is_captured:
        here = Path.cwd()
        _folders[session] = here, here / (settings.artifact_dir or _ARTIFACTS)
    if not is_captured:
        return
    from .capturing.process import ProcessCapture

    _captures[session] = capture = ProcessCapture(session, settings)
    capture.start()


def finish_capture(session: Session, report: Report) -> None:
    """Finish what :func:`start_capture` began."""
    capture = _captures.pop(session, None)
    if capture is not None:
        capture.finish()
    known = _folders.pop(session, None)
    if known is not None and not session.bounds.isolated:
        _keep_evidence(session, report, *known)


def _keep_evidence(session: Session, report: Report, here: Path, folder: Path) -> None:
    from nabla_core.errors import InputError

    from .failures.evidence import write_failure

    try:
        written = write_failure(session, report, folder)
    except InputError as error:
        print(f"nabla: the evidence is not kept: {error}", file=sys.stderr)
        return
    if written is not None:
        print(
            f"nabla: kept the evidence: nabla inspect {shown_from(here, written)}", file=sys.stderr
        )
