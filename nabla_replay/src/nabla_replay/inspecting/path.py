"""Looking at any path: a run, an artifact, a file of tensors, or something else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from nabla_core.artifacts.manifest import MANIFEST_NAME
from nabla_core.artifacts.opening import open_folder
from nabla_core.errors import InputError

from ..store.layout import HEADER_NAME
from .artifact import inspect_artifact
from .inspection import Inspection
from .run import inspect_run
from .state import inspect_state

__all__ = ["inspect_path"]


def inspect_path(
    path: str | Path, progress: Callable[[int, int], None] | None = None
) -> Inspection:
    """Say what a path is, what it holds, and whether it is intact. Nothing in it is loaded.

    Args:
        path: folder of a run, folder of an artifact, or a file.
        progress: told how many of how many checkpoints were read.

    Raises:
        UnsafePathError: it is a link, a pipe or a device.
        InputError: it is missing, cannot be read, or is a folder of something else.
    """
    place = Path(path)
    try:
        mode = os.stat(place, follow_symlinks=False).st_mode
    except OSError as error:
        raise InputError(f"{place}: cannot be looked at: {error.strerror or error}") from error
    if not stat.S_ISDIR(mode):
        return inspect_state(place)
    folder = open_folder(place)
    try:
        names = os.listdir(folder)
    finally:
        os.close(folder)
    if HEADER_NAME in names:
        return inspect_run(place, progress)
    if MANIFEST_NAME in names:
        return inspect_artifact(place)
    raise InputError(
        f"{place}: is neither a captured run (no {HEADER_NAME}) nor an artifact (no "
        f"{MANIFEST_NAME}); give one of these, or a file"
    )
