"""Losses whose targets are signs: a target of 0 stands for neither side there.

They leave no operator of their own in the graph, so their functions are followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .loss_input import LossInput

if TYPE_CHECKING:
    from .losses import LossWatch

__all__ = ["SIGNED_LOSSES", "SignedTargets"]

SIGNED_LOSSES = {
    "cosine_embedding_loss": 2,
    "hinge_embedding_loss": 1,
    "margin_ranking_loss": 2,
    "soft_margin_loss": 1,
}
"""Functions with the position of their targets among their arguments."""


class SignedTargets:
    """Notes the range of such targets for its watch."""

    def __init__(self, watch: LossWatch) -> None:
        self._watch = watch

    def start(self, patches: Patches) -> None:
        """Follow the functions."""
        for name, position in SIGNED_LOSSES.items():
            patches.replace(functional, name, self._follower(name, position))

    def note(self, name: str, target: object) -> None:
        """Note one call, where its targets are zeros and ones only."""
        if not self._watch.is_walking or not isinstance(target, Tensor):
            return
        target = target.detach()
        if not target.numel() or target.is_meta or not torch.is_grad_enabled():
            return
        zeros, ones = target == 0, target == 1
        if bool(zeros.any()) and bool((zeros | ones).all()):
            found = LossInput(
                loss=name,
                labels=target.numel(),
                beyond=int(zeros.sum()),
                low=0.0,
                high=float(target.max()),
                place=user_place(),
            )
            self._watch.facts.seen.append(found)

    def _follower(self, name: str, position: int) -> Callable[[Replacement], Replacement]:
        def wrap(original: Replacement) -> Replacement:
            def followed(*args: object, **kwargs: object) -> object:
                target = args[position] if len(args) > position else kwargs.get("target")
                self._watch.guarded(lambda: self.note(name, target))
                return original(*args, **kwargs)

            return followed

        return wrap
