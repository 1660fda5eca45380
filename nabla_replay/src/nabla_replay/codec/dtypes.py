"""Names of dtypes in state files, their widths, and which torch dtype they are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["ITEM_BYTES", "stored_name", "torch_dtype"]

ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
    "C64": 8,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
"""Bytes per element of every dtype that a safetensors file may hold, as that format spells it."""

_TORCH_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_STORED_NAMES = {torch_name: name for name, torch_name in _TORCH_NAMES.items()}


@cache
def stored_name(dtype: torch.dtype) -> str | None:
    """Return the name of a dtype in a safetensors file, or None if that format lacks it."""
    return _STORED_NAMES.get(str(dtype).removeprefix("torch."))


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype with a stored name or torch's own name; None if there is none."""
    import torch

    found = getattr(torch, _TORCH_NAMES.get(name, name), None)
    return found if isinstance(found, torch.dtype) else None
