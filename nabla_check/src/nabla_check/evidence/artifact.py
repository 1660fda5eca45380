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
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nabla_core.artifacts.manifest import ARTIFACT_SCHEMA, Manifest
from nabla_core.artifacts.writing import ArtifactContent, private_json, write_artifact_folder
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.provenance import device_name, run_versions

__all__ = ["ARTIFACT_SCHEMA", "Evidence", "write_artifact"]


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
    documents = {
        "issues.json": [issue.to_dict() for issue in evidence.issues],
        "setting.json": evidence.setting,
        "environment.json": {"versions": run_versions(default_host()), "device": device_name()},
    }
    name = f"nabla-{evidence.kind}-{_identity(documents)}"
    content = ArtifactContent(
        about=Manifest(
            kind=evidence.kind,
            subject=evidence.subject,
            seed=evidence.seed,
            fingerprints=tuple(issue.fingerprint for issue in evidence.issues),
        ),
        documents=documents,
        texts={} if evidence.script is None else {"reproduction.py": evidence.script},
        tensors={f"{_safe(key)}.npy": _npy(tensor) for key, tensor in evidence.tensors.items()},
    )
    return write_artifact_folder(folder / name, content)


def _identity(documents: Mapping[str, object]) -> str:
    text = private_json(documents["issues.json"]) + private_json(documents["setting.json"])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in name)


def _npy(tensor: torch.Tensor) -> bytes:
    """Return values in C order; dtypes that numpy lacks are stored as raw bytes of their width."""
    import numpy as np

    dense = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    if dense.dtype in (torch.bfloat16, torch.complex32):
        dense = dense.view(torch.int16 if dense.dtype is torch.bfloat16 else torch.int32)
    stream = io.BytesIO()
    np.save(stream, dense.numpy(), allow_pickle=False)
    return stream.getvalue()
