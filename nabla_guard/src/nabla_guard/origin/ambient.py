"""What a computation depends on besides its arguments: grad mode, autocast, random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Ambient", "Generators", "all_generators_kept", "ambient_now", "generators_now"]


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


@contextmanager
def all_generators_kept() -> Iterator[None]:
    """Leave the generators of torch (all devices), ``random`` and numpy as they were."""
    numpy = sys.modules.get("numpy")
    cpu, python = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if _uses_cuda() else None
    legacy = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        random.setstate(python)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy.random.set_state(legacy)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
