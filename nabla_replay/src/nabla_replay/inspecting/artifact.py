"""A failure artifact in a few facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nabla_core.artifacts.manifest import MANIFEST_NAME
from nabla_core.artifacts.reading import Artifact, ArtifactFault, read_artifact, read_listed
from nabla_core.artifacts.strict_json import JsonValue, parse_json
from nabla_core.errors import InputError
from nabla_core.issue import Issue, Location

from ..rules import ARTIFACT_UNSAFE, RECORD_CORRUPT
from ..store.layout import HEADER_NAME
from .inspection import Fact, Inspection, size_text

__all__ = ["inspect_artifact"]

_MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
_MAX_VERDICTS = 20
_MAX_TEXT = 300


def inspect_artifact(path: Path) -> Inspection:
    """Compare an artifact with its manifest, and say what it holds.

    Raises:
        InputError: it is no artifact, or cannot be read.
    """
    if not (path / MANIFEST_NAME).is_file() and (path / HEADER_NAME).is_file():
        raise InputError(f"{path}: is a captured run, no artifact: nabla inspect {path}")
    artifact = read_artifact(path)
    facts = [*_manifest_facts(artifact), *_verdicts(artifact), *_program(artifact)]
    return Inspection(
        path=str(path),
        kind="failure artifact",
        facts=tuple(facts),
        issues=tuple(_issue(fault) for fault in artifact.faults),
    )


def _manifest_facts(artifact: Artifact) -> Iterator[Fact]:
    manifest = artifact.manifest
    yield "about", f"{manifest.kind} of {manifest.subject}"
    yield "seed", str(manifest.seed)
    size_bytes = sum(listed.size_bytes for listed in manifest.files.values())
    yield "files", f"{len(manifest.files)} ({size_text(size_bytes)}): {', '.join(manifest.files)}"
    values = "stored: do not hand them on unread" if manifest.raw_tensors else "not stored"
    yield "tensor values", values


def _verdicts(artifact: Artifact) -> Iterator[Fact]:
    found = _document(artifact, "issues.json")
    if not isinstance(found, list):
        return
    for issue in found[:_MAX_VERDICTS]:
        match issue:
            case {"rule": str(rule), "message": str(message)}:
                yield "verdict", f"{rule[:20]} {message[:_MAX_TEXT]}"


def _program(artifact: Artifact) -> Iterator[Fact]:
    programs = [name for name in artifact.manifest.files if name.endswith(".py")]
    if programs:
        words = "written by nabla from the case, not run here; read it before you run it"
        yield "reproduction", f"{', '.join(programs)}: {words}"


def _document(artifact: Artifact, name: str) -> JsonValue:
    """Return a document, or None if it is not there or not as listed."""
    try:
        return parse_json(read_listed(artifact, name, _MAX_DOCUMENT_BYTES), name)
    except InputError:
        return None


def _issue(fault: ArtifactFault) -> Issue:
    where = Location(file=fault.name)
    if fault.kind in ("unsafe", "unlisted"):
        return ARTIFACT_UNSAFE.issue(f"{fault.name}: {fault.reason}; it was not used.", where=where)
    message = f"{fault.name} is not as the manifest says: {fault.reason}."
    return RECORD_CORRUPT.issue(message, where=where)
