"""Small states, such as those of random generators, inside one JSON value."""

from __future__ import annotations

import base64
import binascii

import torch

from nabla_core.artifacts.strict_json import JsonValue

from ..errors import StateFormatError
from .container import tensor_slot
from .decoding import decode
from .dtypes import stored_name
from .encoded import EncodedState
from .encoding import encode
from .octets import new_tensor, tensor_octets

__all__ = ["pack", "unpack"]


def pack(state: object) -> JsonValue:
    """Return a state as JSON, its tensors as base64.

    Raises:
        UnsupportedStateError: something in it has no safe form.
    """
    encoded = encode(state)
    tensors: dict[str, JsonValue] = {}
    for name, tensor in encoded.tensors.items():
        octets = base64.b64encode(tensor_octets(tensor)).decode("ascii")
        dtype = stored_name(tensor.dtype)
        shape = [tensor.nbytes] if dtype is None else list(tensor.shape)
        tensors[name] = [dtype or "U8", shape, octets]
    return {"tree": encoded.tree, "tensors": tensors}


def unpack(value: JsonValue) -> object:
    """Read :func:`pack`.

    Raises:
        StateFormatError: it breaks the format.
    """
    match value:
        case {"tree": tree, "tensors": dict(rows)}:
            tensors = {name: _tensor(name, row) for name, row in rows.items()}
            return decode(EncodedState(tree=tree, tensors=tensors))
    raise StateFormatError("a packed state is no object with a tree and tensors")


def _tensor(name: str, row: JsonValue) -> torch.Tensor:
    match row:
        case [str(dtype), list(shape), str(text)]:
            octets = _octets(name, text)
            made = new_tensor(tensor_slot(name, dtype, shape, (0, len(octets))))
            tensor_octets(made)[:] = octets
            return made
    raise StateFormatError(f"the packed tensor {name[:80]!r} is malformed")


def _octets(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise StateFormatError(f"the packed tensor {name[:80]!r} is no base64: {error}") from error
