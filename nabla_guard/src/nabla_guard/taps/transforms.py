"""Whether a ``torch.func`` transform runs."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["in_transform"]

in_transform: Callable[[], bool] = torch._C._are_functorch_transforms_active
"""Whether a ``torch.func`` transform is active: its tensors must not outlive it.

To ask for the top of its stack of interpreters would make that stack in every thread, and each
backward pass would copy it for each of its threads.
"""
