"""``nabla.precision``: callable, with ``audit`` beside it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn import Module

from nabla_core.errors import UsageError

from .auditing import CANDIDATES, audit
from .reference import LossFunction
from .result import PrecisionReport

__all__ = ["Precision", "named_dtype", "precision"]

_NAMES = {
    "half": torch.float16,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "float": torch.float32,
}


def named_dtype(given: torch.dtype | str) -> torch.dtype:
    """Return a dtype by its name, e.g. ``"float16"``, ``"bf16"`` or ``"torch.float16"``.

    Raises:
        UsageError: there is no such dtype.
    """
    if isinstance(given, torch.dtype):
        return given
    name = given.strip().removeprefix("torch.")
    found = _NAMES.get(name, getattr(torch, name, None))
    if not isinstance(found, torch.dtype):
        raise UsageError(f"{given!r} is no dtype; choose from float16, bfloat16 and float32")
    return found


class Precision:
    """The namespace ``nabla.precision``; calling it is short for :func:`.auditing.audit`."""

    audit = staticmethod(audit)

    def __call__(
        self,
        model: Module,
        batch: object,
        loss: LossFunction | None = None,
        *,
        dtypes: Iterable[torch.dtype | str] = CANDIDATES,
    ) -> PrecisionReport:
        """Audit a model with dtypes by object or by name; see :func:`.auditing.audit`."""
        chosen = [named_dtype(dtype) for dtype in dtypes]
        return audit(model, batch, loss_fn=loss, candidate_dtypes=chosen)


precision = Precision()
"""``nabla.precision``."""
