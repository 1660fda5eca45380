"""The evidence of a failure as a folder: scalars and a script, tensors only when asked for.

::

    manifest.json      schema, kind, and the SHA-256 and size of every other file
    issues.json        the issues, as in a report
    setting.json       the failing case: shapes, dtypes, layouts, seed
    environment.json   versions and device
    reproduction.py    exits with 1 while the fault is there
    tensors/*.npy      inputs, with ``artifact_raw_tensors`` only
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nabla_core.errors import InputError
from nabla_core.files import write_text
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.provenance import device_name, run_versions
from nabla_core.redaction import redact, redact_tree

__all__ = ["ARTIFACT_SCHEMA", "Evidence", "write_artifact"]

ARTIFACT_SCHEMA = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is stored about one failure.

    Attributes:
        kind: ``"check"`` or ``"fuzz"``.
        subject: name of the operator.
        seed: that was in force.
        issues: the verdicts.
        setting: JSON-safe description of the failing case.
        script: reproduction, if one could be written.
        tensors: by name; stored as ``.npy`` without pickle. Leave empty to store none.
    """

    kind: str
    subject: str
    seed: int
    issues: Sequence[Issue]
    setting: Mapping[str, object] = field(default_factory=dict)
    script: str | None = None
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)


def write_artifact(folder: Path, evidence: Evidence) -> Path:
    """Write a new folder under ``folder`` and return it.

    The name is derived from the issues and the setting, so that the same failure is stored once.

    Raises:
        InputError: the folder cannot be written.
    """
    files = _files(evidence)
    name = f"nabla-{evidence.kind}-{_identity(files)}"
    target = folder / name
    try:
        (target / "tensors" if evidence.tensors else target).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be made: {error.strerror or error}") from error
    for path, text in files.items():
        write_text(target / path, text)
    for tensor_name, tensor in evidence.tensors.items():
        _save(target / "tensors" / f"{_safe(tensor_name)}.npy", tensor)
    write_text(target / "manifest.json", _json(_manifest(target, evidence)))
    return target


def _files(evidence: Evidence) -> dict[str, str]:
    files = {
        "issues.json": _json([issue.to_dict() for issue in evidence.issues]),
        "setting.json": _json(evidence.setting),
        "environment.json": _json(
            {"versions": run_versions(default_host()), "device": device_name()}
        ),
    }
    if evidence.script is not None:
        files["reproduction.py"] = redact(evidence.script)
    return files


def _manifest(target: Path, evidence: Evidence) -> dict[str, object]:
    listed = {
        path.relative_to(target).as_posix(): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size_bytes": path.stat().st_size,
        }
        for path in sorted(target.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
    return {
        "schema_version": ARTIFACT_SCHEMA,
        "kind": evidence.kind,
        "subject": evidence.subject,
        "seed": evidence.seed,
        "fingerprints": [issue.fingerprint for issue in evidence.issues],
        "raw_tensors": bool(evidence.tensors),
        "files": listed,
    }


def _identity(files: Mapping[str, str]) -> str:
    text = files["issues.json"] + files["setting.json"]
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _json(value: object) -> str:
    return json.dumps(redact_tree(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in name)


def _save(path: Path, tensor: torch.Tensor) -> None:
    """Write values in C order; dtypes that numpy lacks are stored as raw bytes of their width."""
    import numpy as np

    dense = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    if dense.dtype in (torch.bfloat16, torch.complex32):
        dense = dense.view(torch.int16 if dense.dtype is torch.bfloat16 else torch.int32)
    np.save(path, dense.numpy(), allow_pickle=False)
