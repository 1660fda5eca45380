"""The state of torch's random generators: looked at, kept and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["RngState", "kept_rng", "restore_rng", "rng_fingerprint", "rng_state"]

RngState = tuple[Tensor, list[Tensor]]


def rng_state() -> RngState:
    """Return the state of the generators of the processor and of every used accelerator."""
    used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if used else []


def restore_rng(state: RngState) -> None:
    """Put a state back."""
    processor, accelerators = state
    torch.set_rng_state(processor)
    if accelerators:
        torch.cuda.set_rng_state_all(accelerators)


def rng_fingerprint() -> int:
    """Return a number that changes when random numbers were drawn."""
    processor, accelerators = rng_state()
    return hash((processor.numpy().tobytes(), *(s.numpy().tobytes() for s in accelerators)))


@contextmanager
def kept_rng() -> Iterator[RngState]:
    """Put the state of before the block back at its end."""
    state = rng_state()
    try:
        yield state
    finally:
        restore_rng(state)
