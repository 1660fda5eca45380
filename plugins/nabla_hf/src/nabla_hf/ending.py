"""Tells callbacks of a training that ends in an exception: the Trainer itself tells nobody."""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

from transformers import Trainer

__all__ = ["HearsOfExceptions", "tell_of_exceptions"]

Train = Callable[..., object]


class HearsOfExceptions(ABC):
    """A callback that wants to know when ``train`` raises."""

    @abstractmethod
    def on_exception(self) -> None:
        """The training of its trainer ended in an exception, which goes on afterwards."""


def tell_of_exceptions() -> None:
    """Let ``Trainer.train`` tell such callbacks from now on; a second call changes nothing.

    The method is passed through: what it is given and what it returns or raises stay the same. A
    trainer whose own ``train`` does not call that of transformers is not heard of.
    """
    own: Train = Trainer.train
    if getattr(own, "_tells_of_exceptions", False):
        return

    @functools.wraps(own)
    def train(self: Trainer, *args: object, **kwargs: object) -> object:
        try:
            return own(self, *args, **kwargs)
        except BaseException:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, HearsOfExceptions):
                    with contextlib.suppress(Exception):  # what the person sees is their own error
                        callback.on_exception()
            raise

    vars(train)["_tells_of_exceptions"] = True
    Trainer.train = cast("Train", train)
