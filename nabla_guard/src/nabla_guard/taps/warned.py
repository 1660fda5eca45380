"""Warnings that torch gives while one of our replacements calls it belong to the caller's line.

Torch names the innermost Python frame, which would be ours.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from .patching import Patches, Replacement
from .place import is_ours

__all__ = ["WarningTap"]


class WarningTap:
    """Shows such a warning at the line at which it is shown when nothing is watched."""

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Watch how warnings are shown. It is nothing that facts need: none is ever missing."""
        patches.replace(warnings, "_showwarnmsg", _relocating)
        return ()


def _relocating(original: Replacement) -> Replacement:
    def _showwarnmsg(message: warnings.WarningMessage) -> object:
        if is_ours(message.filename):
            caller = _caller(message.filename, message.lineno)
            if caller is not None:
                message.filename, message.lineno = caller.f_code.co_filename, caller.f_lineno
        return original(message)

    return _showwarnmsg


def _caller(filename: str, line: int) -> FrameType | None:
    """Return who called our function at this line; ``None`` when it is not running."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (filename, line):
        frame = frame.f_back
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
