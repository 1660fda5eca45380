"""The global random generators: saved, compared and put back."""

from __future__ import annotations

import ctypes
import random
import sys
from dataclasses import dataclass, replace
from typing import Any

import torch

__all__ = ["RandomState", "capture", "changed", "restore", "seeded"]

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
    numpy: tuple[str, Any, int, int, float] | None
    numpy_mark: bytes


def capture(*, with_numpy: bool = False) -> RandomState:
    """Return the present state; ``with_numpy`` makes numpy's part restorable."""
    return RandomState(
        cpu=torch.get_rng_state(),
        devices=tuple(torch.cuda.get_rng_state_all()) if _has_accelerator() else (),
        python=random.getstate(),
        numpy=_numpy_state() if with_numpy else None,
        numpy_mark=_numpy_mark(),
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
    if before.python != after.python:
        found.append("random")
    if before.numpy_mark and before.numpy_mark != after.numpy_mark:
        found.append("numpy")
    return tuple(found)


def seeded(seed: int, around: RandomState, *, with_numpy: bool = False) -> RandomState:
    """Seed the global generators and return that state.

    numpy's generator is left as in ``around`` unless ``with_numpy``, for seeding it is slow and few
    operators use it. Accelerators are seeded once they have been used.
    """
    torch.default_generator.manual_seed(seed)
    if _has_accelerator():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if with_numpy and "numpy" in sys.modules:
        import numpy as np

        np.random.seed(seed % 2**32)
        return capture(with_numpy=True)
    return replace(capture(), numpy=around.numpy, numpy_mark=around.numpy_mark)


def _has_accelerator() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _numpy_state() -> tuple[str, Any, int, int, float] | None:
    if "numpy" not in sys.modules:
        return None
    import numpy as np

    state = np.random.get_state(legacy=True)
    return state if isinstance(state, tuple) else None


def _numpy_mark() -> bytes:
    if "numpy" not in sys.modules:
        return b""
    import numpy as np

    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(generator).__name__ != "MT19937":
        return repr(generator.state).encode()
    # Reading the words where they lie takes a microsecond; generator.state takes a hundred.
    return ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)
