"""What a computation depends on besides its arguments: grad mode, autocast, random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "AllGenerators",
    "Ambient",
    "Generators",
    "all_generators_kept",
    "ambient_now",
    "generators_now",
]


@dataclass(frozen=True, slots=True)
class Ambient:
    """Grad mode and autocast of the calling thread.

    Attributes:
        grad: whether gradients are recorded.
        autocast: device type and dtype of each enabled autocast.
    """

    grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...] = ()

    def restored(self) -> AbstractContextManager[object]:
        """Run the block in this state."""
        return self._with_autocast() if self.autocast else torch.set_grad_enabled(self.grad)

    @contextmanager
    def _with_autocast(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
            yield


_PLAIN = (Ambient(False), Ambient(True))
_DEVICES = ("cpu", "cuda")


def ambient_now() -> Ambient:
    """Return the state of the calling thread."""
    grad = torch.is_grad_enabled()
    if not torch._C._is_any_autocast_enabled():
        return _PLAIN[grad]
    enabled = tuple(
        (device, torch.get_autocast_dtype(device))
        for device in _DEVICES
        if torch.is_autocast_enabled(device)
    )
    return Ambient(grad, enabled)


@dataclass(slots=True, eq=False)  # made in every step: frozen would cost three times
class Generators:
    """States of torch's default generators; that of a GPU only once CUDA is in use."""

    cpu: Tensor
    cuda: Tensor | None = None

    def restore(self) -> None:
        """Put the generators back into these states."""
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)


def generators_now() -> Generators:
    """Return the present states: about 3 microseconds for the CPU."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    return Generators(torch.default_generator.get_state(), cuda)


class AllGenerators:
    """The present states of the generators of torch (all devices), ``random`` and numpy."""

    __slots__ = ("_cpu", "_cuda", "_numpy", "_python")

    def __init__(self) -> None:
        numpy = sys.modules.get("numpy")
        self._cpu, self._python = torch.get_rng_state(), random.getstate()
        self._cuda = torch.cuda.get_rng_state_all() if _uses_cuda() else None
        self._numpy = None if numpy is None else numpy.random.get_state()

    def restore(self) -> None:
        """Put the generators back into these states."""
        torch.set_rng_state(self._cpu)
        random.setstate(self._python)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


@contextmanager
def all_generators_kept() -> Iterator[None]:
    """Leave the generators of torch (all devices), ``random`` and numpy as they were."""
    before = AllGenerators()
    try:
        yield
    finally:
        before.restore()


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
