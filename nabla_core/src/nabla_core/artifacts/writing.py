"""Writing an artifact: each file at once, the manifest last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import InputError
from ..files import write_private_octets, write_text
from ..redaction import redact, redact_tree
from .manifest import MANIFEST_NAME, ListedFile, Manifest

__all__ = ["ArtifactContent", "private_json", "write_artifact_folder"]

TENSOR_FOLDER = "tensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactContent:
    """What goes into an artifact.

    Attributes:
        about: the manifest; its files and ``raw_tensors`` are filled in.
        documents: JSON by file name; redacted when it is written.
        texts: other text by file name; redacted when it is written.
        tensors: content of the files under ``tensors/``; leave empty to store no values.
    """

    about: Manifest
    documents: Mapping[str, object] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, bytes] = field(default_factory=dict)


def private_json(value: object) -> str:
    """Return indented JSON without secrets, home folders, user and host names."""
    return json.dumps(redact_tree(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_artifact_folder(target: Path, content: ArtifactContent) -> Path:
    """Write an artifact; one of the same name is brought up to date.

    Args:
        target: the folder.
        content: what goes into it.

    Returns:
        ``target``.

    Raises:
        InputError: the folder cannot be written.
    """
    inner = target / TENSOR_FOLDER if content.tensors else target
    try:
        inner.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be made: {error.strerror or error}") from error
    for name, document in content.documents.items():
        write_text(target / name, private_json(document))
    for name, text in content.texts.items():
        write_text(target / name, redact(text))
    for name, octets in content.tensors.items():
        write_private_octets(target / TENSOR_FOLDER / name, octets)
    files = _listed(target)
    has_tensors = any(name.startswith(f"{TENSOR_FOLDER}/") for name in files)
    manifest = replace(content.about, files=files, raw_tensors=has_tensors)
    write_text(target / MANIFEST_NAME, private_json(manifest.to_dict()))
    return target


def _listed(target: Path) -> dict[str, ListedFile]:
    return {
        path.relative_to(target).as_posix(): _entry(path)
        for path in sorted(target.rglob("*"))
        if path.is_file() and not path.is_symlink() and path != target / MANIFEST_NAME
    }


def _entry(path: Path) -> ListedFile:
    try:
        octets = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return ListedFile(sha256=hashlib.sha256(octets).hexdigest(), size_bytes=len(octets))
