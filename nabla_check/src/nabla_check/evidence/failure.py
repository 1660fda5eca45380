"""What is kept of a failing operator check: a script that shows it again, and a folder.

Values of the caller's own tensors are private: a script draws tensors of the same shape, dtype and
layout from the seed, unless ``artifact_raw_tensors`` allows to write the values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nabla_core.issue import Issue

from ..inputs.layouts import layout_of
from ..inputs.operands import Operands
from ..inputs.specs import TensorSpec
from ..options import OperatorOptions
from .artifact import Evidence, write_artifact
from .reproduction import code_of, operator_script
from .source_code import source_of

__all__ = ["CheckCall", "script_for", "store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCall:
    """A call of ``nabla.check.operator`` as the user wrote it.

    Attributes:
        candidate: the operator.
        reference: its truth, if any.
        inputs: as handed over.
        options: as bound.
        seed: in force.
    """

    candidate: Callable[..., object]
    reference: Callable[..., object] | None
    inputs: object
    options: OperatorOptions
    seed: int


def script_for(call: CheckCall, title: str) -> str | None:
    """Return a script that exits with 1 while the fault is there, if one can be written."""
    candidate = source_of(call.candidate, "candidate")
    reference = "reference = None"
    if call.reference is not None:
        reference = source_of(call.reference, "reference") or ""
    raw = call.options.artifact_raw_tensors
    inputs, keywords = _code(call.inputs, raw), _code(dict(call.options.kwargs), raw)
    if candidate is None or not reference or inputs is None or keywords is None:
        return None
    arguments = (
        f"inputs={inputs},\n    kwargs={keywords},\n"
        f"    level={call.options.level!r},\n    seed={call.seed},"
    )
    return operator_script(title, candidate, reference, arguments)


def store(
    call: CheckCall, operands: Operands, issues: Sequence[Issue], script: str | None
) -> str | None:
    """Write the evidence to ``artifact_dir``; return the folder, ``None`` when none was asked for.

    Raises:
        InputError: the folder cannot be written.
    """
    if call.options.artifact_dir is None:
        return None
    tensors = {
        name: leaf
        for name, leaf in zip(operands.names, operands.tree.leaves, strict=True)
        if isinstance(leaf, torch.Tensor) and call.options.artifact_raw_tensors
    }
    shapes = {
        name: f"{list(leaf.shape)} {leaf.dtype} {layout_of(leaf)}"
        for name, leaf in zip(operands.names, operands.tree.leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
    }
    evidence = Evidence(
        kind="check",
        subject=issues[0].where.op or "" if issues[0].where else "",
        seed=call.seed,
        issues=issues,
        setting={"inputs": shapes, "level": call.options.level},
        script=script,
        tensors=tensors,
    )
    return str(write_artifact(Path(call.options.artifact_dir), evidence))


def _code(value: object, raw: bool) -> str | None:
    if isinstance(value, TensorSpec):
        return _drawn(value)
    if isinstance(value, torch.Tensor) and not raw:
        return _like(value)
    if isinstance(value, Mapping):
        parts = {repr(key): _code(item, raw) for key, item in value.items()}
        if None in parts.values():
            return None
        return "{" + ", ".join(f"{key}: {part}" for key, part in parts.items()) + "}"
    if isinstance(value, (list, tuple)):
        items = [_code(item, raw) for item in value]
        known = [item for item in items if item is not None]
        inner = ", ".join(known)
        if len(known) != len(items):
            return None
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if known else ''})"
    return code_of(value)


def _drawn(spec: TensorSpec) -> str | None:
    if not isinstance(spec.shape, tuple):
        return None
    return (
        f"nabla.tensor(shape={spec.shape}, dtype={spec.dtypes[0]}, layout={spec.layouts[0]!r}, "
        f"distribution={spec.distributions[0]!r}, requires_grad={spec.requires_grad})"
    )


def _like(tensor: torch.Tensor) -> str | None:
    if tensor.layout != torch.strided or tensor.dtype is torch.bool:
        return None
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    if whole:
        return None  # indices and masks cannot be drawn: they decide whether the call works
    return (
        f"nabla.tensor(shape={tuple(tensor.shape)}, dtype={tensor.dtype}, "
        f"layout={layout_of(tensor)!r}, requires_grad={tensor.requires_grad})"
    )
