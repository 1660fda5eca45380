"""One short text for a whole state: equal states have equal digests, in every process."""

from __future__ import annotations

import hashlib

from nabla_core.artifacts.strict_json import dump_json

from .encoding import encode
from .octets import tensor_octets

__all__ = ["digest"]

_DIGEST_BYTES = 8


def digest(state: object, *, tensors: bool = True) -> str:
    """Return 16 hexadecimal digits that depend on every value and on the structure.

    Args:
        state: anything that can be stored.
        tensors: whether the values of tensors count; without, only their place, dtype and shape.

    Raises:
        UnsupportedStateError: something in it has no stored form.

    Source: BLAKE2b with an 8-byte digest; two different states of a run collide by chance once in
    about 2^64 pairs.
    """
    encoded = encode(state)
    hasher = hashlib.blake2b(dump_json(encoded.tree), digest_size=_DIGEST_BYTES)
    for name, tensor in encoded.tensors.items():
        hasher.update(
            f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode("utf-8", "replace")
        )
        if tensors:
            hasher.update(tensor_octets(tensor))
    return hasher.hexdigest()
