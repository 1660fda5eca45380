"""From live state to its stored form. What has no safe form is refused with its place.

Only exact types are taken: a subclass may carry more than its values, and storing those alone would
lose the rest in silence.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch

from nabla_core.artifacts.strict_json import JsonValue, dump_json

from ..errors import UnsupportedStateError
from .dtypes import stored_name
from .encoded import MAX_DEPTH, EncodedState

__all__ = ["FACTORIES", "encode", "snapshot"]

FACTORIES: dict[str, type | None] = {
    "none": None,
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "list": list,
    "dict": dict,
    "set": set,
    "tuple": tuple,
}
"""What a stored ``defaultdict`` may make; any other factory is code, which is not stored."""

_SAFE_INT = 1 << 53  # a reader that takes JSON numbers for doubles still gets them right


def encode(state: object) -> EncodedState:
    """Return the stored form of a state; its tensors share memory with the state.

    Raises:
        UnsupportedStateError: something in it has no safe form.
    """
    return _Encoder(copy=False).run(state)


def snapshot(state: object, spare: EncodedState | None = None) -> EncodedState:
    """Return the stored form of a state as it is now, in host memory of its own.

    Args:
        state: what to copy.
        spare: an earlier snapshot that nobody needs any more; its memory is used again, which costs
            a fifth of what fresh memory does for a small model.

    Raises:
        UnsupportedStateError: something in it has no safe form.
    """
    return _Encoder(copy=True, spare=spare).run(state)


class _Encoder:
    def __init__(self, *, copy: bool, spare: EncodedState | None = None) -> None:
        self.copy = copy
        self.spare = {} if spare is None else spare.tensors
        self.tensors: dict[str, torch.Tensor] = {}
        self.names: dict[tuple[object, ...], str] = {}

    def run(self, state: object) -> EncodedState:
        with torch.no_grad():
            tree = self.value(state, "$", 0)
        return EncodedState(tree=tree, tensors=self.tensors)

    def value(self, value: object, place: str, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise UnsupportedStateError(
                place, f"is nested deeper than {MAX_DEPTH} levels, or contains itself"
            )
        handler = self.handlers.get(type(value))
        if handler is not None:
            return handler(self, value, place, depth)
        if isinstance(value, np.generic):
            return _numpy_scalar(value, place)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UnsupportedStateError(
            place, f"{kind} cannot be stored; give its numbers as a dict, list or tensor instead"
        )

    def plain(self, value: JsonValue, place: str, depth: int) -> JsonValue:
        return value

    def integer(self, value: int, place: str, depth: int) -> JsonValue:
        return value if -_SAFE_INT < value < _SAFE_INT else {"$int": hex(value)}

    def real(self, value: float, place: str, depth: int) -> JsonValue:
        return value if math.isfinite(value) else {"$float": _bits(value)}

    def complex_number(self, value: complex, place: str, depth: int) -> JsonValue:
        return {"$complex": [_bits(value.real), _bits(value.imag)]}

    def octets(self, value: bytes, place: str, depth: int) -> JsonValue:
        return {"$bytes": base64.b64encode(value).decode("ascii")}

    def sequence(self, value: Iterable[object], place: str, depth: int) -> list[JsonValue]:
        return [self.value(item, f"{place}[{i}]", depth + 1) for i, item in enumerate(value)]

    def tuple_(self, value: tuple[object, ...], place: str, depth: int) -> JsonValue:
        return {"$tuple": self.sequence(value, place, depth)}

    def size(self, value: torch.Size, place: str, depth: int) -> JsonValue:
        return {"$size": list(value)}

    def set_(self, value: set[object] | frozenset[object], place: str, depth: int) -> JsonValue:
        items = [self.value(item, f"{place}{{}}", depth + 1) for item in value]
        tag = "$set" if type(value) is set else "$frozenset"
        return {tag: sorted(items, key=dump_json)}  # the order of a set differs between processes

    def dtype(self, value: torch.dtype, place: str, depth: int) -> JsonValue:
        return {"$dtype": str(value).removeprefix("torch.")}

    def device(self, value: torch.device, place: str, depth: int) -> JsonValue:
        return {"$device": str(value)}

    def mapping(self, value: Mapping[object, object], place: str, depth: int) -> JsonValue:
        if type(value) is dict and all(
            type(key) is str and not key.startswith("$") for key in value
        ):
            return {
                str(key): self.value(item, f"{place}.{key}", depth + 1)
                for key, item in value.items()
            }
        pairs: list[JsonValue] = [
            [
                self.value(key, f"{place} (a key)", depth + 1),
                self.value(item, f"{place}.{key}", depth + 1),
            ]
            for key, item in value.items()
        ]
        return {"$map": [type(value).__name__, pairs, self.extra(value, place, depth)]}

    def extra(self, value: Mapping[object, object], place: str, depth: int) -> JsonValue:
        """Return what a mapping has besides its pairs."""
        if isinstance(value, defaultdict):
            for name, factory in FACTORIES.items():
                if value.default_factory is factory:
                    return name
            raise UnsupportedStateError(
                place, "the factory of a defaultdict is code, which is not stored; use a dict"
            )
        # torch keeps the versions of modules there, and load_state_dict reads them
        versions = getattr(value, "_metadata", None)
        return None if versions is None else self.value(versions, f"{place}._metadata", depth + 1)

    def tensor(self, value: torch.Tensor, place: str, depth: int) -> JsonValue:
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise _refused_tensor(value, place)
        name = self.keep(value, place)
        if stored_name(value.dtype) is not None:
            return {"$tensor": name}
        return {"$tensor": [name, str(value.dtype).removeprefix("torch."), list(value.shape)]}

    def keep(self, value: torch.Tensor, place: str) -> str:
        """Store a tensor under a name, once for all that are the same memory."""
        if value.is_conj() or value.is_neg():  # the same memory, read in another way
            name = self.new_name(place)
            self.tensors[name] = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
            return name
        where = None if value.is_cpu else value.device
        identity = (value.data_ptr(), value.dtype, value.shape, value.stride(), where)
        known = self.names.get(identity)
        if known is not None and value.numel():
            return known
        name = self.new_name(place)
        self.names[identity] = name
        self.tensors[name] = self.host(value, name)
        return name

    def host(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """Return the values in host memory, contiguous; a copy of their own if asked for."""
        if not self.copy:
            return value.detach().cpu().contiguous()
        kept = self.spare.pop(name, None)
        if kept is not None and kept.dtype == value.dtype and kept.shape == value.shape:
            return kept.copy_(value)
        if not value.is_cpu:
            return value.cpu().contiguous()
        # gradients are off here, so that the copy has none
        return value.clone(memory_format=torch.contiguous_format)

    def new_name(self, place: str) -> str:
        name = place.removeprefix("$").lstrip(".") or "value"
        found, count = name, 1
        while found in self.tensors or found == "__metadata__":
            count += 1
            found = f"{name}#{count}"
        return found

    def array(self, value: np.ndarray, place: str, depth: int) -> JsonValue:
        if value.dtype.kind not in "biufc" or value.dtype.itemsize > 16:
            raise UnsupportedStateError(place, f"a numpy array of {value.dtype} cannot be stored")
        octets = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8).copy()
        name = self.new_name(place)
        self.tensors[name] = torch.from_numpy(octets)
        return {"$array": [name, value.dtype.str, list(value.shape)]}

    handlers: ClassVar[dict[type, Callable[..., JsonValue]]] = {
        type(None): plain,
        bool: plain,
        str: plain,
        int: integer,
        float: real,
        complex: complex_number,
        bytes: octets,
        list: sequence,
        tuple: tuple_,
        set: set_,
        frozenset: set_,
        dict: mapping,
        OrderedDict: mapping,
        defaultdict: mapping,
        Counter: mapping,
        torch.Size: size,
        torch.dtype: dtype,
        torch.device: device,
        torch.Tensor: tensor,
        torch.nn.Parameter: tensor,
        np.ndarray: array,
    }


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def _numpy_scalar(value: np.generic, place: str) -> JsonValue:
    if value.dtype.kind not in "biufc" or value.dtype.itemsize > 16:
        raise UnsupportedStateError(place, f"a numpy scalar of {value.dtype} cannot be stored")
    return {"$scalar": [value.dtype.str, base64.b64encode(value.tobytes()).decode("ascii")]}


def _refused_tensor(value: torch.Tensor, place: str) -> UnsupportedStateError:
    if value.is_meta:
        return UnsupportedStateError(place, "a meta tensor has no values to store")
    what = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
    return UnsupportedStateError(place, f"a {what} tensor cannot be stored; make it dense first")
