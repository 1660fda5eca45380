"""Compares the replicas of a model while they train: eight bytes per rank, unless they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed
from torch.nn import Module

from nabla_core.errors import UsageError

from ..capturing.parts import unwrapped
from ..fingerprints.fingerprinter import Fingerprinter, algorithm_for, value_bytes
from ..fingerprints.table import entries_of, extent_of
from .result import RankComparison, odd_ranks, ranks_issue

__all__ = ["compare_replicas"]

_DIGEST_BYTES = 8
_known: WeakKeyDictionary[Module, tuple[tuple[int, ...], Fingerprinter]] = WeakKeyDictionary()


def compare_replicas(
    model: Module, *, buffers: Iterable[str] = (), step: int | None = None
) -> RankComparison:
    """Compare the parameters of a model over all ranks, now. Every rank must call it.

    Args:
        model: the replica of this rank.
        buffers: names of buffers that are to be equal as well.
        step: for the report.

    Raises:
        UsageError: this process has joined no process group.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        raise UsageError(
            "compare_ranks(model): this process has joined no process group; call "
            "torch.distributed.init_process_group first, or give the folder of a run"
        )
    fingerprinter = _fingerprinter(unwrapped(model), frozenset(buffers))
    packed = fingerprinter.packed(0)
    digest = hashlib.blake2b(packed, digest_size=_DIGEST_BYTES).digest()
    ranks = tuple(range(distributed.get_world_size()))
    if len(set(_gathered(digest))) == 1:
        return RankComparison(ranks=ranks, compared_steps=1)
    rows = _gathered(packed)
    size = value_bytes(fingerprinter.algorithm)
    differing = {}
    for at, piece in enumerate(fingerprinter.pieces[0]):
        values = {rank: row[at * size : (at + 1) * size] for rank, row in enumerate(rows)}
        odd = odd_ranks(values)
        if odd:
            differing[fingerprinter.entries[piece.entry].name] = odd
    return RankComparison(
        ranks=ranks,
        issues=(ranks_issue(differing, step),),
        first_step=step,
        differing=differing,
        compared_steps=1,
    )


def _fingerprinter(model: Module, buffers: frozenset[str]) -> Fingerprinter:
    """Return what hashes a model, the same as long as it holds the same tensors."""
    identity = tuple(id(one) for one in (*model.parameters(), *model.buffers()))
    known = _known.get(model)
    if known is not None and known[0] == identity:
        return known[1]
    entries = tuple(
        entry
        for entry in entries_of(model)
        if entry.component == "parameter" or (entry.component == "buffer" and entry.name in buffers)
    )
    found = Fingerprinter(entries, [extent_of(one) for one in entries], algorithm_for(entries))
    if not buffers:
        _known[model] = (identity, found)
    return found


def _gathered(raw: bytes) -> list[bytes]:
    """Return the bytes of every rank; all have the same length."""
    device = torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
    mine = torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(device)
    rows: list[Tensor] = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(rows, mine)
    return [row.cpu().numpy().tobytes() for row in rows]
