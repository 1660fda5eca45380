"""State in its stored form: a tree of JSON, and the tensors that the tree names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nabla_core.artifacts.strict_json import JsonValue

if TYPE_CHECKING:
    import torch

__all__ = ["MAX_DEPTH", "EncodedState"]

MAX_DEPTH = 64
"""Levels of nesting that are written and read; more is a structure that contains itself, or an
attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedState:
    """A state that can be stored.

    A value that JSON can say stands for itself. Everything else is an object with one key:

    ================  ==================================================================
    ``$tensor``       name, or ``[name, dtype, shape]`` if the file lacks the dtype
    ``$array``        ``[name, numpy dtype, shape]``
    ``$scalar``       ``[numpy dtype, base64]``
    ``$int``          hexadecimal, beyond 53 bits
    ``$float``        16 hexadecimal digits of the bits, if not finite
    ``$complex``      the bits of both parts
    ``$bytes``        base64
    ``$tuple``, ``$set``, ``$frozenset``, ``$size``    list of the elements
    ``$dtype``, ``$device``                            name
    ``$map``          ``[kind, [[key, value], ...], extra]``
    ================  ==================================================================

    Attributes:
        tree: the JSON.
        tensors: by name; the name is the place in the state, so that any reader of safetensors
            finds ``model.0.weight``. A tied tensor is there once and named twice.
    """

    tree: JsonValue
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())
