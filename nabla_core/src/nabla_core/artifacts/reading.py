"""Reading an artifact that a stranger may have made. Nothing is executed, no link is followed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import InputError
from .manifest import MANIFEST_NAME, MAX_FILES, ListedFile, Manifest, manifest_from_json
from .opening import UnsafePathError, open_folder, open_regular, read_regular

__all__ = ["Artifact", "ArtifactFault", "FaultKind", "read_artifact", "read_listed"]

FaultKind: TypeAlias = Literal["missing", "changed", "unlisted", "unsafe"]
"""Not there; other bytes than listed; there but not listed; a link, a pipe or a device."""

_MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_MAX_FILE_BYTES = 1 << 40
_MAX_LEVELS = 3
_PIECE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFault:
    """One file that is not as the manifest says."""

    name: str
    kind: FaultKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An artifact, compared with its manifest.

    Attributes:
        path: of the folder.
        manifest: what it says about itself.
        faults: where it is not as it says; empty for an intact one.
    """

    path: Path
    manifest: Manifest
    faults: tuple[ArtifactFault, ...]

    @property
    def is_intact(self) -> bool:
        """Whether every file is as listed, and there is no other."""
        return not self.faults


def read_artifact(path: str | Path) -> Artifact:
    """Read the manifest of an artifact and compare every file with it.

    Raises:
        ArtifactFormatError: the manifest is of another version or malformed.
        StrictJsonError: the manifest is no strict JSON.
        UnsafePathError: the folder or its manifest is a link, a pipe or a device.
        InputError: it is missing or cannot be read.
    """
    folder = open_folder(path)
    try:
        if MANIFEST_NAME not in os.listdir(folder):
            raise InputError(f"{path}: holds no {MANIFEST_NAME}, so it is no failure artifact")
        text = read_regular(MANIFEST_NAME, inside=folder, max_bytes=_MAX_MANIFEST_BYTES)
        manifest = manifest_from_json(text, f"{path}/{MANIFEST_NAME}")
        faults = [*_listed_faults(folder, manifest), *_other_faults(folder, manifest)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    finally:
        os.close(folder)
    return Artifact(path=Path(path), manifest=manifest, faults=tuple(faults))


def read_listed(artifact: Artifact, name: str, max_bytes: int) -> bytes:
    """Return the content of a listed file, compared with the manifest again.

    Raises:
        InputError: it is not listed, not as listed, or larger than ``max_bytes``.
    """
    listed = artifact.manifest.files.get(name)
    if listed is None:
        raise InputError(f"{name}: is not listed in the manifest")
    with ExitStack() as opened:
        folder = open_folder(artifact.path)
        opened.callback(os.close, folder)
        *folders, last = name.split("/")
        for part in folders:
            folder = open_folder(part, inside=folder)
            opened.callback(os.close, folder)
        octets = read_regular(last, inside=folder, max_bytes=max_bytes)
    if hashlib.sha256(octets).hexdigest() != listed.sha256:
        raise InputError(f"{name}: is not as the manifest says")
    return octets


def _listed_faults(folder: int, manifest: Manifest) -> Iterator[ArtifactFault]:
    for name, listed in manifest.files.items():
        try:
            reason = _difference(folder, name.split("/"), listed)
            kind: FaultKind = "changed"
        except UnsafePathError as error:
            kind, reason = "unsafe", str(error)
        except InputError as error:
            kind, reason = "missing", str(error)
        if reason:
            yield ArtifactFault(name=name, kind=kind, reason=reason)


def _difference(folder: int, parts: list[str], listed: ListedFile) -> str:
    """Return how a file differs from its entry, or nothing. Its size is compared before it is read.

    Raises:
        InputError: it cannot be opened.
    """
    if len(parts) > 1:
        inner = open_folder(parts[0], inside=folder)
        try:
            return _difference(inner, parts[1:], listed)
        finally:
            os.close(inner)
    descriptor = open_regular(parts[0], inside=folder, max_bytes=_MAX_FILE_BYTES)
    try:
        size = os.fstat(descriptor).st_size
        if size != listed.size_bytes:
            return f"has {size} bytes, the manifest says {listed.size_bytes}"
        hasher = hashlib.sha256()
        while piece := os.read(descriptor, _PIECE_BYTES):
            hasher.update(piece)
    finally:
        os.close(descriptor)
    return "" if hasher.hexdigest() == listed.sha256 else "its SHA-256 is not the listed one"


def _other_faults(folder: int, manifest: Manifest) -> Iterator[ArtifactFault]:
    known = {MANIFEST_NAME, *manifest.files}
    for count, (name, mode) in enumerate(_walk(folder, "", 1)):
        if count > MAX_FILES:
            yield ArtifactFault(name=name, kind="unlisted", reason="and more files after it")
            return
        if stat.S_ISREG(mode):
            if name not in known:
                yield ArtifactFault(name=name, kind="unlisted", reason="is not in the manifest")
        elif name not in known:  # a listed one was told above
            yield ArtifactFault(name=name, kind="unsafe", reason="is no regular file")


def _walk(folder: int, prefix: str, level: int) -> Iterator[tuple[str, int]]:
    """Yield path and mode of everything in a folder that is no folder itself."""
    for name in sorted(os.listdir(folder)):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) or level == _MAX_LEVELS:
            yield prefix + name, mode
            continue
        inner = open_folder(name, inside=folder)
        try:
            yield from _walk(inner, f"{prefix}{name}/", level + 1)
        finally:
            os.close(inner)
