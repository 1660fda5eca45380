"""From the stored form back to state. Only known tags make objects; no name is looked up."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import torch

from nabla_core.artifacts.strict_json import JsonValue

from ..errors import StateFormatError
from .dtypes import torch_dtype
from .encoded import MAX_DEPTH, EncodedState
from .encoding import FACTORIES

__all__ = ["decode"]

_NUMPY_DTYPE = re.compile(r"[<>|][biufc](?:1|2|4|8|16)")
_DEVICE = re.compile(r"[a-z]{1,20}(?::[0-9]{1,4})?")


def decode(encoded: EncodedState) -> object:
    """Return the state, with its tensors in host memory.

    Raises:
        StateFormatError: the tree breaks the format, or does not fit the tensors.
    """
    decoder = _Decoder(encoded.tensors)
    state = decoder.value(encoded.tree, 0)
    spare = set(encoded.tensors) - decoder.used
    if spare:
        raise StateFormatError(f"the tree does not name the tensor {min(spare)[:80]!r}")
    return state


class _Decoder:
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = tensors
        self.used: set[str] = set()
        self.made: dict[str, torch.Tensor] = {}

    def value(self, node: JsonValue, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise StateFormatError(f"the tree is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, list):
            return [self.value(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        if not any(key.startswith("$") for key in node):
            return {key: self.value(item, depth + 1) for key, item in node.items()}
        if len(node) != 1:
            raise StateFormatError("a tagged value has other keys beside its tag")
        ((tag, content),) = node.items()
        return self.tagged(tag, content, depth + 1)

    def tagged(self, tag: str, content: JsonValue, depth: int) -> object:
        try:
            if tag in _SIMPLE:
                return _SIMPLE[tag](content)
            if tag in _CONTAINERS and isinstance(content, list):
                return _CONTAINERS[tag](self.value(item, depth) for item in content)
            match tag, content:
                case "$tensor", str(name):
                    return self.tensor(name)
                case "$tensor", [str(name), str(dtype), list(shape)]:
                    return self.raw_tensor(name, dtype, shape)
                case "$array", [str(name), str(dtype), list(shape)]:
                    return self.array(name, dtype, shape)
                case "$map", [str(kind), list(pairs), extra]:
                    return self.mapping(kind, pairs, extra, depth)
        except (TypeError, ValueError, RuntimeError, OverflowError, struct.error) as error:
            raise StateFormatError(f"a {tag[:20]} value is malformed: {error}") from error
        raise StateFormatError(f"a value has the unknown or malformed tag {tag[:20]!r}")

    def tensor(self, name: str) -> torch.Tensor:
        if name not in self.tensors:
            raise StateFormatError(f"the tree names the tensor {name[:80]!r}, which is not there")
        self.used.add(name)
        return self.tensors[name]

    def raw_tensor(self, name: str, dtype_name: str, shape: list[JsonValue]) -> torch.Tensor:
        octets, dtype, sizes = self.tensor(name), torch_dtype(dtype_name), _sizes(shape)
        if name in self.made:  # tied: the same object again
            return self.made[name]
        if dtype is None or octets.dtype != torch.uint8:
            raise StateFormatError(
                f"tensor {name[:80]!r} has the unknown dtype {dtype_name[:40]!r}"
            )
        made = octets.reshape(-1).view(dtype).reshape(sizes)
        self.made[name] = made
        return made

    def array(self, name: str, dtype: str, shape: list[JsonValue]) -> np.ndarray:
        octets = self.tensor(name)
        if octets.dtype != torch.uint8:
            raise StateFormatError(f"array {name[:80]!r} is not stored as bytes")
        return (
            np.frombuffer(octets.numpy().tobytes(), _numpy_dtype(dtype))
            .reshape(_sizes(shape))
            .copy()
        )

    def mapping(
        self, kind: str, pairs: list[JsonValue], extra: JsonValue, depth: int
    ) -> dict[object, object]:
        found = _empty(kind, extra)
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise StateFormatError("a mapping has something that is no pair")
            key = self.value(pair[0], depth + 1)
            if key in found:
                raise StateFormatError("a mapping has the same key twice")
            found[key] = self.value(pair[1], depth + 1)
        if kind == "OrderedDict" and extra is not None:
            setattr(found, "_metadata", self.value(extra, depth + 1))  # noqa: B010  torch's own name
        return found


def _empty(kind: str, extra: JsonValue) -> dict[object, object]:
    if kind == "defaultdict" and isinstance(extra, str) and extra in FACTORIES:
        return defaultdict(FACTORIES[extra])
    if kind == "OrderedDict":
        return OrderedDict()
    if kind == "dict" and extra is None:
        return {}
    if kind == "Counter" and extra is None:
        counts: dict[object, object] = Counter()  # type: ignore[assignment]
        return counts
    raise StateFormatError(f"a mapping is of the unknown kind {kind[:40]!r}")


def _integer(content: JsonValue) -> int:
    return int(_text(content), 16)


def _real(content: JsonValue) -> float:
    digits = _text(content)
    if len(digits) != 16:
        raise ValueError("needs 16 hexadecimal digits")
    (value,) = struct.unpack(">d", bytes.fromhex(digits))
    return float(value)


def _complex(content: JsonValue) -> complex:
    if not isinstance(content, list) or len(content) != 2:
        raise ValueError("needs two parts")
    return complex(_real(content[0]), _real(content[1]))


def _octets(content: JsonValue) -> bytes:
    try:
        return base64.b64decode(_text(content), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _scalar(content: JsonValue) -> np.generic:
    if not isinstance(content, list) or len(content) != 2:
        raise ValueError("needs a dtype and bytes")
    dtype, octets = _numpy_dtype(_text(content[0])), _octets(content[1])
    if len(octets) != dtype.itemsize:
        raise ValueError(f"needs {dtype.itemsize} bytes, has {len(octets)}")
    scalar: np.generic = np.frombuffer(octets, dtype)[0]
    return scalar


def _size(content: JsonValue) -> torch.Size:
    return torch.Size(_sizes(content))


def _dtype(content: JsonValue) -> torch.dtype:
    found = torch_dtype(_text(content))
    if found is None:
        raise ValueError("this torch has no such dtype")
    return found


def _device(content: JsonValue) -> torch.device:
    name = _text(content)
    if not _DEVICE.fullmatch(name):
        raise ValueError("is no device")
    return torch.device(name)


_SIMPLE: dict[str, Callable[[JsonValue], object]] = {
    "$int": _integer,
    "$float": _real,
    "$complex": _complex,
    "$bytes": _octets,
    "$scalar": _scalar,
    "$size": _size,
    "$dtype": _dtype,
    "$device": _device,
}
_CONTAINERS: dict[str, Callable[..., object]] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
}


def _text(content: JsonValue) -> str:
    if not isinstance(content, str):
        raise ValueError("needs a string")
    return content


def _sizes(shape: JsonValue) -> list[int]:
    if not isinstance(shape, list):
        raise ValueError("needs a shape")
    sizes = [size for size in shape if type(size) is int and size >= 0]
    if len(sizes) != len(shape) or len(sizes) > MAX_DEPTH or prod(filter(None, sizes)) >= 1 << 62:
        raise ValueError("has an impossible shape")
    return sizes


def _numpy_dtype(text: str) -> np.dtype[np.generic]:
    if not _NUMPY_DTYPE.fullmatch(text):
        raise ValueError(f"has the numpy dtype {text[:40]!r}, which is not read")
    return np.dtype(text)
