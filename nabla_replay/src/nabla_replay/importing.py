"""Taking over a checkpoint of another program, once and on purpose, without running it.

This is the only place that reads a pickle, through torch's restricted reader, and nothing else in
nabla calls it: the command line does, when a person asks for it.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import torch

from nabla_core.artifacts.opening import read_regular
from nabla_core.errors import InputError, UsageError

from .codec.writing import StoredFile, save_state

__all__ = ["import_checkpoint"]

_SAFE_SINCE = (2, 6)
_MAX_BYTES = 1 << 40


def import_checkpoint(source: Path, target: Path) -> StoredFile:
    """Write the state in a file of ``torch.save`` as a state file.

    Args:
        source: the file; it may hold tensors, numbers, text, lists, tuples and dicts.
        target: the new file; it must not exist.

    Raises:
        UsageError: torch is older than 2.6: its restricted reader could be made to run code
            (CVE-2025-32434).
        UnsafePathError: ``source`` is a link, a pipe or a device.
        UnsupportedStateError: a value has no safe form.
        InputError: ``source`` cannot be read without running code, or ``target`` exists or cannot
            be written.
    """
    _require_safe_torch(torch.__version__)
    if target.exists():
        raise InputError(f"{target}: exists; name a file that does not")
    octets = read_regular(source, max_bytes=_MAX_BYTES)
    try:
        state = torch.load(io.BytesIO(octets), map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(
            f"{source}: cannot be read without running code from it ({_cause(error)})"
        ) from error
    try:
        return save_state(target, state, {"imported_from": source.name})
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error


def _cause(error: Exception) -> str:
    """Return the one fact of a long message that also says how to switch the protection off."""
    wanted = re.search(r"(?:GLOBAL|global) (\S+)", str(error))
    if wanted is not None:
        return f"it asks for {wanted[1][:100]}"
    return f"{type(error).__name__}: it is damaged, or no file of torch.save"


def _require_safe_torch(version: str) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _SAFE_SINCE:
        raise UsageError(
            f"torch {version}: before 2.6 its restricted reader could be made to run code; install "
            "torch 2.6 or later to import a checkpoint"
        )
