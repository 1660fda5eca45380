"""The global random generators: saved, compared and put back."""

from __future__ import annotations

import ctypes
import random
import sys
from dataclasses import dataclass, replace
from typing import Any

import torch

__all__ = ["EXTREME_SEEDS", "RandomState", "capture", "changed", "restore", "seeded"]

_NumpyState = tuple[str, Any, int, int, float]

_last_numpy_state: dict[bytes, _NumpyState] = {}
"""The last state by its mark, for reading the state takes as long as a small operator.

Only states without a second Gaussian in store are kept: with one, the mark does not tell whether it
has been used since.
"""
_HAS_GAUSS = 3

EXTREME_SEEDS = (30818, 42926, 10180, 18985, 27866, 19498, 19510, 23808)
"""The first uniform number is below 1e-4 or above 1 - 1e-4: pairs for ``random``, numpy, torch in
float32 and in float64. They take both ways at a rare event, such as a layer that is dropped."""

_MT19937_BYTES = 624 * 4 + 4
"""Size of numpy's default bit generator: 624 words and a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomState:
    """State of every global generator of this process.

    Attributes:
        cpu: torch's CPU generator, bytes.
        devices: torch's accelerator generators, bytes each.
        python: of :mod:`random`.
        numpy: of ``numpy.random``, where it was captured; slow to read and to write.
        numpy_mark: bytes that change with it; ``b""`` when numpy has not been imported.
    """

    cpu: torch.Tensor
    devices: tuple[torch.Tensor, ...]
    python: tuple[Any, ...]
    numpy: _NumpyState | None
    numpy_mark: bytes


def capture(*, with_numpy: bool = False) -> RandomState:
    """Return the present state; ``with_numpy`` makes numpy's part restorable."""
    mark = _numpy_mark()
    return RandomState(
        cpu=torch.get_rng_state(),
        devices=tuple(torch.cuda.get_rng_state_all()) if _has_accelerator() else (),
        python=random.getstate(),
        numpy=_numpy_state(mark) if with_numpy else None,
        numpy_mark=mark,
    )


def restore(state: RandomState) -> None:
    """Put all global generators back."""
    torch.set_rng_state(state.cpu)
    if state.devices:
        torch.cuda.set_rng_state_all(list(state.devices))
    random.setstate(state.python)
    if state.numpy is not None and state.numpy_mark != _numpy_mark():
        import numpy as np

        np.random.set_state(state.numpy)


def changed(before: RandomState, after: RandomState) -> tuple[str, ...]:
    """Name the generators whose state differs."""
    found = []
    if not torch.equal(before.cpu, after.cpu):
        found.append("torch")
    pairs = zip(before.devices, after.devices, strict=False)
    if any(not torch.equal(old, new) for old, new in pairs):
        found.append("torch (accelerator)")
    if _python_mark(before) != _python_mark(after):
        found.append("random")
    if before.numpy_mark and before.numpy_mark != after.numpy_mark:
        found.append("numpy")
    return tuple(found)


def seeded(seed: int, around: RandomState, *, with_numpy: bool = False) -> RandomState:
    """Seed the global generators and return that state.

    numpy's generator is left as in ``around`` unless ``with_numpy``, for putting it back is slow
    and few operators use it. Accelerators are seeded once they have been used.
    """
    torch.default_generator.manual_seed(seed)
    devices: tuple[torch.Tensor, ...] = ()
    if _has_accelerator():
        torch.cuda.manual_seed_all(seed)
        devices = tuple(torch.cuda.get_rng_state_all())
    random.seed(seed)
    if with_numpy and "numpy" in sys.modules:
        import numpy as np

        np.random.seed(seed % 2**32)
        return capture(with_numpy=True)
    return replace(around, cpu=torch.get_rng_state(), devices=devices, python=random.getstate())


def _python_mark(state: RandomState) -> tuple[object, ...]:
    """Return a word, the position and the Gaussian in store: a draw or a seed moves one of them.

    Not the first word, which is the same after every seed.
    """
    _, words, gaussian = state.python
    return words[1], words[-1], gaussian


def _has_accelerator() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _numpy_state(mark: bytes) -> _NumpyState | None:
    if "numpy" not in sys.modules:
        return None
    if mark in _last_numpy_state:
        return _last_numpy_state[mark]
    import numpy as np

    state = np.random.get_state(legacy=True)
    if not isinstance(state, tuple):
        return None
    if not state[_HAS_GAUSS]:
        _last_numpy_state.clear()
        _last_numpy_state[mark] = state
    return state


def _numpy_mark() -> bytes:
    if "numpy" not in sys.modules:
        return b""
    import numpy as np

    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(generator).__name__ != "MT19937":
        return repr(generator.state).encode()
    # Reading the words where they lie takes a microsecond; generator.state takes a hundred.
    return ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)
