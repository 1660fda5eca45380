"""Number, shape, dtype and device of the outputs against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..inputs.evaluation import Outputs
from ..rules import OUTPUT_STRUCTURE

__all__ = ["structures"]


def structures(
    exam: Examination, candidate: Outputs, reference: Outputs, setting: str
) -> Iterator[Issue]:
    """Yield what differs in number, shape, dtype or device of the outputs (CHK103)."""
    got, expected = candidate.tensors, reference.tensors
    tail = f" ({setting})" if setting else ""
    if len(got) != len(expected):
        yield exam.verdict(
            OUTPUT_STRUCTURE,
            f"The operator returned {len(got)} tensors, the reference {len(expected)}{tail}.",
            phase="forward",
        )
        return
    for name, a, b in zip(reference.tensor_names, got, expected, strict=True):
        for what in ("shape", "dtype", "device"):
            left, right = getattr(a, what), getattr(b, what)
            if left != right:
                yield exam.verdict(
                    OUTPUT_STRUCTURE,
                    f"The {what} of {name} is {_plain(left)}, that of the reference "
                    f"{_plain(right)}{tail}.",
                    operand=name,
                    phase="forward",
                    got=_plain(left),
                    expected=_plain(right),
                )
                break


def _plain(value: object) -> str:
    return str(list(value)) if isinstance(value, torch.Size) else str(value)
