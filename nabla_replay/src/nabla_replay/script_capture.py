"""Starts and finishes the capture of a script under ``nabla run``; free of torch until then."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .capture_settings import CaptureSettings

if TYPE_CHECKING:
    from nabla_core.session import Session

    from .capturing.process import ProcessCapture

__all__ = ["finish_capture", "start_capture"]

_RUN = "nabla run"
_captures: WeakKeyDictionary[Session, ProcessCapture] = WeakKeyDictionary()


def start_capture(session: Session) -> None:
    """Capture the script that ``session`` watches, if ``[tool.nabla.replay]`` asks for it."""
    if not session.bounds.command.startswith(_RUN):
        return  # inside a program, nabla.capture says what to record
    if CaptureSettings not in session.host.options.values():
        return
    settings = session.options(CaptureSettings)
    if not settings.capture:
        return
    from .capturing.process import ProcessCapture

    _captures[session] = capture = ProcessCapture(session, settings)
    capture.start()


def finish_capture(session: Session) -> None:
    """Finish what :func:`start_capture` began."""
    capture = _captures.pop(session, None)
    if capture is not None:
        capture.finish()
