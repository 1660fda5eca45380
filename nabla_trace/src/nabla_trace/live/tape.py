"""The way from a model's output to the loss, recorded so that it can be gone again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..batches import outputs_in
from ..ghost.call import Function, Path, replaced, tensors_in

__all__ = ["LossTape"]

_MOST = 2_000


@dataclass(frozen=True, slots=True)
class _Entry:
    """One call: which arguments are values of the tape, and where the results go."""

    func: Function
    args: tuple[object, ...]
    kwargs: dict[str, object]
    places: dict[Path, int]
    results: tuple[int, ...]


class LossTape(TorchFunctionMode):
    """Records what happens to the outputs of a model until ``backward`` is called.

    Args:
        output: what the model returned.
        on_backward: called with the loss, right before its backward pass.

    Attributes:
        loss: the tensor that ``backward`` was called on, detached; ``None`` before.
    """

    def __init__(self, output: object, on_backward: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.loss: Tensor | None = None
        self._on_backward = on_backward
        self._entries: list[_Entry] = []
        self._slots: dict[int, int] = {}
        self._kept: list[Tensor] = list(outputs_in(output))
        for tensor in self._kept:
            self._slots[id(tensor)] = len(self._slots)
        self._target: int | None = None
        self._usable = True
        self._open = False

    def start(self) -> None:
        """Record from now on."""
        self._open = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop recording; a mode that somebody put on top of this one is left alone."""
        if not self._open:
            return
        count = torch._C._len_torch_function_stack()
        if count and torch._C._get_function_stack_at(count - 1) is self:
            self._open = False
            self.__exit__(None, None, None)

    @property
    def usable(self) -> bool:
        """Whether the loss is known and :meth:`replay` gives it."""
        return self._usable and self._target is not None

    def forget(self) -> None:
        """Let go of every tensor."""
        self.stop()
        self._entries, self._kept, self._slots, self._target = [], [], {}, None

    def replay(self, output: object) -> float:
        """Return the loss of another output of the same form."""
        values: dict[int, Tensor] = dict(enumerate(outputs_in(output)))
        for entry in self._entries:
            args, kwargs = replaced(
                entry.args,
                entry.kwargs,
                lambda path, tensor, entry=entry: (  # type: ignore[misc]
                    values[entry.places[path]] if path in entry.places else tensor
                ),
            )
            made = [tensor for _, tensor in tensors_in((entry.func(*args, **kwargs),), {})]
            values.update(zip(entry.results, made, strict=False))
        return float(values[self._target]) if self._target is not None else float("nan")

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Let ``func`` run and note it, if it works on something of the tape."""
        given = kwargs or {}
        if self.loss is not None or not self._open:
            return func(*args, **given)
        if func is torch.Tensor.backward and isinstance(args[0], Tensor):
            self._end(args[0])
            return func(*args, **given)
        out = func(*args, **given)
        self._note(func, (args, given), out)
        return out

    # ------------------------------------------------------------------ private
    def _end(self, loss: Tensor) -> None:
        self.loss = loss.detach()
        self._target = self._slots.get(id(loss)) if loss.numel() == 1 else None
        self.stop()
        self._on_backward(loss)

    def _note(
        self, func: Function, given: tuple[tuple[object, ...], dict[str, object]], out: object
    ) -> None:
        places = {
            path: self._slots[id(tensor)]
            for path, tensor in tensors_in(*given)
            if id(tensor) in self._slots
        }
        results = [tensor for _, tensor in tensors_in((out,), {})]
        if not places or not results:
            return
        name = getattr(func, "__name__", "")
        if (name.endswith("_") and not name.endswith("__")) or len(self._entries) >= _MOST:
            self._usable = False  # a value written in place cannot be made again from the record
        for tensor in results:
            if id(tensor) not in self._slots:
                self._slots[id(tensor)] = len(self._slots)
                self._kept.append(tensor)
        args, kwargs = replaced(*given, lambda path, tensor: tensor.detach())
        self._entries.append(
            _Entry(func, args, kwargs, places, tuple(self._slots[id(t)] for t in results))
        )
