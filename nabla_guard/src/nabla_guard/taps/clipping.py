"""The clipping of gradients, noted as a whole: inside, torch makes several calls per parameter."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from .functions import kept_by_listener
from .patching import Patches, Replacement

if TYPE_CHECKING:
    from .wire import Wire

__all__ = ["ClippingTap"]


class ClippingTap:
    """Lets the keeper note ``clip_grad_norm_`` as one call."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the function where it is looked up; return what this version of torch lacks.

        Where a program has imported it by name before, only the norm inside is noted as a whole.
        """
        points = (
            (clip_grad, "clip_grad_norm_"),
            (torch.nn.utils, "clip_grad_norm_"),
            (clip_grad, "_get_total_norm"),
        )
        return tuple(
            f"{owner.__name__}.{name}"
            for owner, name in points
            if not patches.replace(owner, name, self._wrap)
        )

    def _wrap(self, original: Replacement) -> Replacement:
        is_traced = torch.compiler.is_dynamo_compiling  # first: the compiler must see nothing else

        def clip(*args: object, **kwargs: object) -> object:
            if is_traced() or not args or kept_by_listener(self._wire) is None:
                return original(*args, **kwargs)
            given = self._listed(args[0])
            if not given:
                return original(*args, **kwargs)
            return self._wire.keeper.noted(partial(original), (given, *args[1:]), kwargs)

        return clip

    def _listed(self, tensors: object) -> list[Tensor]:
        """What is clipped; walking a module's parameters makes calls of its own for each."""
        if isinstance(tensors, Tensor):
            return [tensors]
        return self._wire.keeper.unnoted(list, tensors)
