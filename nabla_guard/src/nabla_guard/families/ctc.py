"""What a connectionist temporal classification was given: scores and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .graph import saved_int, saved_tensor

if TYPE_CHECKING:
    from torch.autograd.graph import Node

__all__ = ["CtcInput", "ctc_input"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcInput:
    """Numbers of one CTC loss.

    Attributes:
        high: largest value of its log-probabilities.
        labels: number of labels within the target lengths.
        blanks: how many of them are the blank.
    """

    high: float
    labels: int
    blanks: int


def ctc_input(node: Node) -> CtcInput | None:
    """Return what the operator of a CTC loss saved, or ``None`` where that is not kept.

    Args:
        node: the operator; its targets are padded ``[N, S]`` or joined ``[sum of lengths]``.
    """
    scores, targets = saved_tensor(node, "log_probs"), saved_tensor(node, "targets")
    lengths = _lengths(node)
    if scores is None or targets is None or not lengths or not scores.numel() or scores.is_meta:
        return None
    real = _real_targets(targets.detach(), lengths)
    blank = saved_int(node, "blank") or 0
    return CtcInput(
        high=float(scores.detach().amax()),
        labels=real.numel(),
        blanks=int((real == blank).sum()),
    )


def _lengths(node: Node) -> list[int]:
    found = getattr(node, "_saved_target_lengths", ())
    return [int(length) for length in (found.tolist() if isinstance(found, Tensor) else found)]


def _real_targets(targets: Tensor, lengths: list[int]) -> Tensor:
    """The labels without their padding, which may lawfully be the blank."""
    if targets.dim() < 2:
        return targets[: sum(lengths)]
    rows = zip(targets, lengths, strict=True)
    return torch.cat([row[:length] for row, length in rows])
