"""Where a run is written: which rank this is, and a folder that all ranks agree on."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed

from ..store.header import new_run_id

__all__ = ["Place", "find_place", "intended_world_size", "joined", "run_folder"]

_ID_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process among those that train together, and the ID of their run."""

    rank: int
    world_size: int
    run_id: str


def find_place(now_s: float) -> Place:
    """Return rank, world size and a new run's ID, which is that of rank 0.

    Processes that have not joined a process group cannot agree on one: each writes its own run.

    Args:
        now_s: seconds since 1970.
    """
    run_id = new_run_id(now_s, secrets.token_hex(3))
    if not joined():
        return Place(rank=0, world_size=1, run_id=run_id)
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    return Place(rank=rank, world_size=world_size, run_id=_agreed(run_id))


def joined() -> bool:
    """Whether this process has joined a process group of several."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def intended_world_size() -> int:
    """Return how many processes were started together, joined or not."""
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def run_folder(root: str | Path, place: Place) -> Path:
    """Return the folder of a new run."""
    return Path(root) / place.run_id


def _agreed(run_id: str) -> str:
    """Send rank 0's ID to the others, as plain bytes."""
    device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
    letters = torch.zeros(_ID_BYTES, dtype=torch.uint8)
    raw = run_id.encode("ascii")[:_ID_BYTES]
    letters[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8)
    shared = letters.to(device)
    distributed.broadcast(shared, src=0)
    return bytes(shared.cpu().tolist()).rstrip(b"\0").decode("ascii")
