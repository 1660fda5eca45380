"""Custom operators of ``torch.library``: schema, fake kernel, autograd registration."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..rules import CUSTOM_OP_CONTRACT

__all__ = ["is_custom_operator", "library_contract"]


def is_custom_operator(function: object) -> bool:
    """Whether ``torch.library.opcheck`` accepts ``function``."""
    kinds = [torch._ops.OpOverload, torch._ops.OpOverloadPacket]
    custom = getattr(torch.library, "CustomOpDef", None)
    if custom is not None:
        kinds.append(custom)
    return isinstance(function, tuple(kinds))


def library_contract(exam: Examination) -> Iterator[Issue]:
    """Let torch's opcheck judge the registration (CHK261)."""
    function = exam.candidate.callee.function
    if not is_custom_operator(function):
        exam.skip(CUSTOM_OP_CONTRACT, "the candidate is no torch.library operator")
        return
    leaves = exam.operands.leaves_with(exam.operands.values())
    args, kwargs, _ = exam.operands.call(leaves)
    outcomes = torch.library.opcheck(
        function,  # type: ignore[arg-type]
        args,
        kwargs,
        raise_exception=False,
    )
    for test, outcome in outcomes.items():
        if outcome != "SUCCESS" and isinstance(outcome, Exception):
            first = (str(outcome).strip().splitlines() or ["failed"])[0]
            yield exam.verdict(
                CUSTOM_OP_CONTRACT,
                f"opcheck's {test} failed with {type(outcome).__name__}: {first[:200]}",
                phase="forward",
                test=test,
            )
