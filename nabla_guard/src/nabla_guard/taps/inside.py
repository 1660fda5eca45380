"""Looking inside a root module while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch.nn import Module

__all__ = ["NOBODY", "Inside", "Insider"]


class Inside(Protocol):
    """Is told about the modules that one call of a root module runs, in the thread of the call."""

    whole: bool
    """Whether it wants to be around every call, not only behind those of leaf modules."""

    def ended(self, module: Module, output: object) -> None:
        """A leaf module returned ``output``."""

    def around(
        self,
        call: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Call any module; only where :attr:`whole`."""


class _Nobody:
    """Looks inside nothing."""

    whole = False

    def ended(self, module: Module, output: object) -> None:
        """See :class:`Inside`."""

    def around(
        self,
        call: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """See :class:`Inside`."""
        return call(module, *args, **kwargs)


NOBODY: Inside = _Nobody()
"""Stands for the absence of anybody who looks inside a root module that runs."""


class Insider(Protocol):
    """Decides for each call of a root module whether it is looked into."""

    def begin(self, root: Module) -> Inside | None:
        """A root module is about to run. Never raises."""
