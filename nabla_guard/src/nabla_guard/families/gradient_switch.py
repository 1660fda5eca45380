"""Who switched gradients off around a call: the program, or torch on its behalf."""

from __future__ import annotations

import os
from types import FrameType

import torch
from torch import Tensor

__all__ = ["switched_off_by"]

_TORCH = os.path.dirname(torch.__file__)
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_DISTRIBUTIONS = os.path.join(_TORCH, "distributions") + os.sep
_REENTRANT = {"ctx", "run_function", "args"}
_MAX_FRAMES = 80


def switched_off_by(frame: FrameType | None) -> str:
    """Say what switched gradients off around ``frame``.

    Returns:
        ``"checkpoint"`` inside the first run of a reentrant checkpoint none of whose inputs takes a
        gradient: its backward pass never runs, so neither does the recomputation in which its
        parameters would get theirs. ``"sample"`` inside ``Distribution.sample``, which is
        differentiable nowhere. Else ``"no_grad"``: the program asked for it.
    """
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if code.co_filename.startswith(_DISTRIBUTIONS) and code.co_name == "sample":
            return "sample"
        if code.co_filename == _CHECKPOINT and {*code.co_varnames} >= _REENTRANT:
            return "no_grad" if _takes_gradients(frame.f_locals["args"]) else "checkpoint"
        frame = frame.f_back
    return "no_grad"


def _takes_gradients(given: tuple[object, ...]) -> bool:
    return any(isinstance(found, Tensor) and found.requires_grad for found in given)
