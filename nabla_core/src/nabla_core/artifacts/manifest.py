"""``manifest.json`` of an artifact: what it is, and the size and SHA-256 of every other file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InputError
from .opening import is_plain_name
from .strict_json import JsonObject, JsonValue, parse_object

__all__ = [
    "ARTIFACT_SCHEMA",
    "MANIFEST_NAME",
    "MAX_FILES",
    "ArtifactFormatError",
    "ListedFile",
    "Manifest",
    "manifest_from_json",
]

ARTIFACT_SCHEMA = "1.0"
MANIFEST_NAME = "manifest.json"
MAX_FILES = 10_000

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_PARTS = 3


class ArtifactFormatError(InputError):
    """A folder is no artifact that this version can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """What the manifest says about one file."""

    sha256: str
    size_bytes: int

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"sha256": self.sha256, "size_bytes": self.size_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an artifact says about itself.

    Attributes:
        kind: what made it, e.g. ``"check"``.
        subject: what it is about, e.g. the name of an operator.
        seed: that was in force.
        fingerprints: of the issues in it.
        raw_tensors: whether values of the user's tensors are in it.
        files: by path relative to the folder, with ``/``.
    """

    kind: str
    subject: str
    seed: int
    fingerprints: tuple[str, ...] = ()
    raw_tensors: bool = False
    files: Mapping[str, ListedFile] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the content of ``manifest.json``."""
        return {
            "schema_version": ARTIFACT_SCHEMA,
            "kind": self.kind,
            "subject": self.subject,
            "seed": self.seed,
            "fingerprints": list(self.fingerprints),
            "raw_tensors": self.raw_tensors,
            "files": {name: listed.to_dict() for name, listed in self.files.items()},
        }


def manifest_from_json(text: bytes, what: str) -> Manifest:
    """Read a ``manifest.json``.

    Raises:
        StrictJsonError: it is no strict JSON.
        ArtifactFormatError: another major version, a part of the wrong form, more than 10,000
            files, or a path that leads out of the folder.
    """
    found = parse_object(text, what)
    version = str(found.get("schema_version"))
    if version.partition(".")[0] != ARTIFACT_SCHEMA.partition(".")[0]:
        raise ArtifactFormatError(
            f"{what}: schema_version is {version[:40]!r}; this version reads {ARTIFACT_SCHEMA}"
        )
    match found:
        case {
            "kind": str(kind),
            "subject": str(subject),
            "seed": int(seed),
            "fingerprints": list(fingerprints),
            "raw_tensors": bool(raw_tensors),
            "files": dict(files),
        }:
            return Manifest(
                kind=kind,
                subject=subject,
                seed=seed,
                fingerprints=tuple(str(one) for one in fingerprints),
                raw_tensors=raw_tensors,
                files=_files(files, what),
            )
    raise ArtifactFormatError(f"{what}: lacks a part, or has one of the wrong type")


def _files(found: JsonObject, what: str) -> dict[str, ListedFile]:
    if len(found) > MAX_FILES:
        raise ArtifactFormatError(f"{what}: lists {len(found)} files, at most {MAX_FILES} are read")
    return {name: _file(name, entry, what) for name, entry in found.items()}


def _file(name: str, entry: JsonValue, what: str) -> ListedFile:
    parts = name.split("/")
    if len(parts) > _MAX_PARTS or not all(map(is_plain_name, parts)):
        raise ArtifactFormatError(f"{what}: lists {name[:100]!r}, which leads out of the folder")
    match entry:
        case {"sha256": str(digest), "size_bytes": int(size)} if (
            _SHA256.fullmatch(digest) and not isinstance(size, bool) and size >= 0
        ):
            return ListedFile(sha256=digest, size_bytes=size)
    raise ArtifactFormatError(f"{what}: the entry of {name[:100]!r} is malformed")
