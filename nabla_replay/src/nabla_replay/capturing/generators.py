"""The random generators that every program shares: their state, and a cheap digest of it."""

from __future__ import annotations

import ctypes
import random
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ..errors import RecordError
from ..fingerprints.views import window

__all__ = [
    "GENERATORS",
    "GeneratorDigest",
    "drawn_between",
    "generator_state",
    "restore_generators",
]

GENERATORS = ("torch", "numpy", "python", "cuda")
"""The parts of a digest, in their order."""

DIGITS = 5
"""Hexadecimal digits per generator: a record is written for every step."""

_MASK = (1 << 4 * DIGITS) - 1
_HOST_DIGITS = f"%0{DIGITS}x" * 3

_WORDS = 624  # of a Mersenne twister
_PYTHON_HEAD = 16  # CPython: reference count and type, then index and words


def generator_state() -> dict[str, object]:
    """Return the full state of torch's, NumPy's and Python's global generators.

    Generators of accelerators are included once torch has initialised them.
    """
    state: dict[str, object] = {
        "torch": torch.default_generator.get_state(),
        "numpy": _numpy_state(),
        "python": _python_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_generators(state: Mapping[str, object]) -> None:
    """Undo the global generators to :func:`generator_state`.

    Devices that this process lacks are left out.

    Raises:
        RecordError: the state has another form.
    """
    try:
        torch.set_rng_state(cast("Tensor", state["torch"]))
        np.random.set_state(cast("dict[str, object]", state["numpy"]))
        python = cast("Mapping[str, object]", state["python"])
        words = tuple(
            int(word)
            for word in cast("np.ndarray[tuple[int], np.dtype[np.uint32]]", python["words"])
        )
        random.setstate((python["version"], words, python["gauss"]))
        devices = cast("list[Tensor]", state.get("cuda", []))
        if torch.cuda.is_available():
            for index, device in enumerate(devices[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(device, index)
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise RecordError(
            f"the recorded state of the generators cannot be restored: {error}"
        ) from error


class GeneratorDigest:
    """Digests the global generators after every step.

    Asking NumPy and Python for their state costs more than a small step may cost: the words of
    their Mersenne twisters are read in place, where that was seen to give the same numbers.
    """

    def __init__(self) -> None:
        self._python = _python_reader()
        self._numpy = _numpy_reader()

    def __call__(self) -> str:
        """Return some hexadecimal digits per generator, in the order of :data:`GENERATORS`."""
        state = torch.default_generator.get_state()
        words = window(state.numel()).from_address(state.data_ptr())
        host = (zlib.crc32(words) or 1) & _MASK, self._numpy() & _MASK, self._python() & _MASK
        return _HOST_DIGITS % host + self._devices()

    @staticmethod
    def _devices() -> str:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return ""
        value = 0
        for state in torch.cuda.get_rng_state_all():  # seed and offset, kept in host memory
            value = zlib.crc32(state.numpy().tobytes(), value)
        return f"{value & _MASK:0{DIGITS}x}"


def drawn_between(one: str, other: str) -> tuple[str, ...]:
    """Return the names of the generators that two digests do not agree on."""
    places = range(0, max(len(one), len(other)), DIGITS)
    return tuple(
        GENERATORS[place // DIGITS] if place // DIGITS < len(GENERATORS) else "another one"
        for place in places
        if one[place : place + DIGITS] != other[place : place + DIGITS]
    )


def _python_reader() -> Callable[[], int]:
    """Return what digests Python's generator."""
    memory = _python_memory()
    return _slow_python if memory is None else lambda: zlib.crc32(memory)


@cache
def _python_memory() -> ctypes.Array[ctypes.c_char] | None:
    """Return index and words of Python's generator in place; ``None`` if they lie elsewhere.

    They stand behind the head of the object in every CPython; checked against ``getstate`` before
    it is relied on.
    """
    owner = getattr(random.getstate, "__self__", None)
    size = 4 * (_WORDS + 1)
    if owner is None or type(owner).__basicsize__ < _PYTHON_HEAD + size:
        return None
    memory = (ctypes.c_char * size).from_address(id(owner) + _PYTHON_HEAD)
    words = random.getstate()[1]
    expected = np.array((words[-1], *words[:-1]), np.uint32).tobytes()
    return memory if bytes(memory) == expected else None


def _python_state() -> dict[str, object]:
    """Return the state of Python's generator; a tuple of 625 integers takes long to make."""
    owner = getattr(random.getstate, "__self__", None)
    memory = _python_memory()
    if memory is None or type(owner) is not random.Random:
        version, words, gauss = random.getstate()
        return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
    raw = np.frombuffer(bytes(memory), np.uint32)
    words = np.concatenate((raw[1:], raw[:1]))
    gauss = getattr(owner, "gauss_next", None)
    return {"version": owner.VERSION, "words": words, "gauss": gauss}


def _slow_python() -> int:
    words = random.getstate()[1]
    return zlib.crc32(np.array((words[-1], *words[:-1]), np.uint32).tobytes())


def _numpy_reader() -> Callable[[], int]:
    """Return what digests NumPy's legacy generator."""
    found = _numpy_memory()
    if found is None:
        return _slow_numpy
    bits, memory = found
    return lambda: zlib.crc32(memory) if _bit_generator() is bits else _slow_numpy()


def _bit_generator() -> object:
    """Return what NumPy's functions draw from; old versions do not say."""
    current = getattr(np.random, "get_bit_generator", None)
    return None if current is None else current()


@cache
def _numpy_memory() -> tuple[object, ctypes.Array[ctypes.c_char]] | None:
    """Return NumPy's bit generator with its words and index in place; it publishes the address."""
    bits = _bit_generator()
    if not isinstance(bits, np.random.MT19937):
        return None
    memory = (ctypes.c_char * (4 * (_WORDS + 1))).from_address(bits.ctypes.state_address)
    return (bits, memory) if zlib.crc32(memory) == _slow_numpy() else None


_numpy_known: list[tuple[bytes, Mapping[str, object]]] = []


def _numpy_state() -> Mapping[str, object]:
    """Return the state of NumPy's legacy generator.

    Reading it takes as long as copying a megabyte. The last one is still right where words and
    index are the same and no normal number waits: every draw then moves the index.
    """
    found = _numpy_memory()
    if found is None or _bit_generator() is not found[0]:
        return cast("Mapping[str, object]", np.random.get_state(legacy=False))
    raw = bytes(found[1])
    if _numpy_known and _numpy_known[0][0] == raw:
        return _numpy_known[0][1]
    state = cast("Mapping[str, object]", np.random.get_state(legacy=False))
    _numpy_known[:] = [] if state["has_gauss"] else [(raw, state)]
    return state


def _slow_numpy() -> int:
    whole = np.random.get_state(legacy=False)
    if whole["bit_generator"] != "MT19937":
        return zlib.crc32(repr(whole).encode())
    inner = whole["state"]
    return zlib.crc32(inner["key"].tobytes() + np.int32(inner["pos"]).tobytes())
