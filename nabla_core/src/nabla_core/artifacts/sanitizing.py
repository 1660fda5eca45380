"""An artifact that can be handed to others: no values, no source, and text redacted once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from .reading import Artifact, read_artifact, read_listed
from .strict_json import JsonValue, parse_json
from .writing import ArtifactContent, write_artifact_folder

__all__ = ["Sanitized", "sanitize_artifact"]

_MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

Sanitized = tuple[Path, tuple[str, ...]]
"""The new folder, and the names of the files that were left out."""


def sanitize_artifact(path: str | Path, target: Path) -> Sanitized:
    """Write a copy of an artifact with its JSON documents only.

    Left out are tensors and programs: both are the user's. What stays is redacted again, with the
    user, host and folders of this machine.

    Args:
        path: the artifact; it must be intact.
        target: new folder.

    Raises:
        InputError: the artifact is damaged or unsafe, or ``target`` is there already.
    """
    artifact = read_artifact(path)
    if artifact.faults:
        first = artifact.faults[0]
        raise InputError(
            f"{path}: is not intact ({first.name}: {first.reason}); sanitize the original"
        )
    if target.exists():
        raise InputError(f"{target}: exists; name a folder that does not")
    documents = _documents(artifact)
    content = ArtifactContent(about=replace(artifact.manifest, files={}), documents=dict(documents))
    left_out = tuple(name for name in artifact.manifest.files if name not in documents)
    return write_artifact_folder(target, content), left_out


def _documents(artifact: Artifact) -> dict[str, JsonValue]:
    return {
        name: parse_json(read_listed(artifact, name, _MAX_DOCUMENT_BYTES), name)
        for name in artifact.manifest.files
        if name.endswith(".json") and "/" not in name
    }
