"""Where the user's code is right now: the innermost frame that belongs to the user."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from nabla_core.discovery import FIRST_PARTY

from ..facts import Place

__all__ = ["Line", "count_on_stack", "is_of_user", "is_ours", "user_line", "user_place"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = ("nabla_core", *(f"nabla_{name}" for name in FIRST_PARTY))
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_LIBRARIES = f"{os.sep}site-packages{os.sep}"
_RANKS: dict[str, int] = {}


class Line(NamedTuple):
    """A line of source as the interpreter knows it: cheap to note, shown only when needed."""

    filename: str
    number: int
    function: str

    @property
    def place(self) -> Place:
        """The line as a person is shown it: relative to the working folder where possible."""
        inside = self.filename.startswith(os.getcwd() + os.sep)
        shown = os.path.relpath(self.filename) if inside else self.filename
        return Place(shown, self.number, self.function)


def user_line(until: CodeType | None = None) -> Line | None:
    """Return the innermost line of the user's own code, else of a library; never torch's.

    Args:
        until: look only at what was called from the function with this code object, if it runs.
    """
    frame: FrameType | None = sys._getframe(1)
    library: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        if code is until:
            break
        rank = _RANKS.get(code.co_filename)
        if not rank:
            if rank is None:
                rank = _rank(code.co_filename)
            if not rank:
                return Line(code.co_filename, frame.f_lineno, code.co_name)
        if rank == 1 and library is None:
            library = frame
        frame = frame.f_back
    return None if library is None else _line(library)


def user_place() -> Place | None:
    """Return :func:`user_line` as a person is shown it."""
    line = user_line()
    return None if line is None else line.place


def count_on_stack(code: CodeType) -> int:
    """Return how many calls of the function with this code object run in the calling thread."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back
    return count


def is_of_user(filename: str) -> bool:
    """Return whether a file is the user's own code."""
    return _rank(filename) == 0


def _rank(filename: str) -> int:
    """:func:`_classify`, once for each file."""
    rank = _RANKS.get(filename)
    if rank is None:
        rank = _RANKS[filename] = _classify(filename)
    return rank


def _classify(filename: str) -> int:
    """0 for the user's code, 1 for a library, 2 for what is never named."""
    if filename.startswith((_TORCH, "<frozen", "<string")) or is_ours(filename):
        return 2
    if _LIBRARIES in filename or filename.startswith(_STANDARD):
        return 1
    return 0


def is_ours(filename: str) -> bool:
    """Whether a file belongs to a package of the project; one that runs has been imported."""
    packages = (sys.modules.get(name) for name in _OURS)
    files = (getattr(package, "__file__", None) for package in packages)
    return any(found and filename.startswith(os.path.dirname(found) + os.sep) for found in files)


def _line(frame: FrameType) -> Line:
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
