"""Where the user's code is right now: the innermost frame that belongs to the user."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType, FrameType

import torch

import nabla_core

from .facts import Place

__all__ = ["count_on_stack", "user_place"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = (os.path.dirname(__file__) + os.sep, os.path.dirname(nabla_core.__file__) + os.sep)
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_LIBRARIES = f"{os.sep}site-packages{os.sep}"
_RANKS: dict[str, int] = {}


def user_place() -> Place | None:
    """Return the innermost line of the user's own code, else of a library; never torch's."""
    frame: FrameType | None = sys._getframe(1)
    library: FrameType | None = None
    while frame is not None:
        rank = _rank(frame.f_code.co_filename)
        if rank == 0:
            return _place(frame)
        if rank == 1 and library is None:
            library = frame
        frame = frame.f_back
    return None if library is None else _place(library)


def count_on_stack(code: CodeType) -> int:
    """Return how many calls of the function with this code object run in the calling thread."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back
    return count


def _rank(filename: str) -> int:
    """0 for the user's code, 1 for a library, 2 for what is never named."""
    rank = _RANKS.get(filename)
    if rank is None:
        rank = _RANKS[filename] = _classify(filename)
    return rank


def _classify(filename: str) -> int:
    if filename.startswith((_TORCH, *_OURS, "<frozen", "<string")):
        return 2
    if _LIBRARIES in filename or filename.startswith(_STANDARD):
        return 1
    return 0


def _place(frame: FrameType) -> Place:
    filename = frame.f_code.co_filename
    inside = filename.startswith(os.getcwd() + os.sep)
    shown = os.path.relpath(filename) if inside else filename
    return Place(shown, frame.f_lineno, frame.f_code.co_name)
