"""State that an operator updates from its inputs and reads: there no numerical derivative tells."""

from __future__ import annotations

import torch

from ..examination import Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands
from ..wording.compare import same_bits

__all__ = ["reads_updated_state"]


def reads_updated_state(exam: Examination, operands: Operands) -> bool:
    """Whether the output at ``operands`` depends on buffers that the call itself changes.

    Autograd treats such state as constant on purpose (running centres, power iterations), a
    numerical derivative cannot. State that is only kept for later, as the running statistics of a
    batch normalisation, does not count.
    """
    names = exam.candidate.callee.buffers()
    if not names:
        return False
    try:
        first = exam.candidate.forward(operands.values(), operands=operands, stage="forward nearby")
        handed = exam.candidate.handed
        updated = {
            index: leaf.detach().clone()
            for index, leaf in enumerate(handed)
            if operands.names[index] in names
            and isinstance(leaf, torch.Tensor)
            and not same_bits(leaf, _tensor(operands.tree.leaves[index]))
        }
        if not updated:
            return False
        second = exam.candidate.forward(
            operands.values(), operands=operands.replaced(updated), stage="forward nearby"
        )
    except OperatorRaised:
        return True
    pairs = zip(first.differentiable, second.differentiable, strict=False)
    return any(not same_bits(a, b) for a, b in pairs)


def _tensor(leaf: object) -> torch.Tensor:
    return leaf if isinstance(leaf, torch.Tensor) else torch.empty(0)
