"""The way from a model's output to the loss, recorded so that it can be gone again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..batches import outputs_in
from ..ghost.call import Function, Path, replaced, tensors_in
from ..ghost.function_watch import writes

__all__ = ["LossTape"]

_MOST = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One call: which arguments are values of the tape, and where the results go.

    ``repeatable`` is whether it gives the same again with other parameters of the model.
    """

    func: Function
    args: tuple[object, ...]
    kwargs: dict[str, object]
    places: dict[Path, int]
    results: tuple[int, ...]
    repeatable: bool


class LossTape(TorchFunctionMode):
    """Records what happens to the outputs of a model until ``backward`` is called.

    A loss that depends on what is trained in another way than through the outputs (a penalty on
    weights, a loss that the model keeps in an attribute) cannot be made again from the record; nor
    can one that is written into a tensor that was there before, or that holds gradients.

    Args:
        output: what the model returned.
        on_backward: called with the loss, right before its backward pass.
        moved: identities of the leaves that the optimizer moves.

    Attributes:
        loss: the tensor that ``backward`` was called on, detached; ``None`` before.
    """

    def __init__(
        self, output: object, on_backward: Callable[[Tensor], None], moved: frozenset[int]
    ) -> None:
        super().__init__()
        self._moved = moved
        self.loss: Tensor | None = None
        self._on_backward = on_backward
        self._entries: list[_Entry] = []
        self._slots: dict[int, int] = {}
        self._kept: list[Tensor] = list(outputs_in(output))
        for tensor in self._kept:
            self._slots[id(tensor)] = len(self._slots)
        self._target: int | None = None
        self._usable = True
        self._writes = False
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
        if not self._writes:  # a write may reach the loss through a view
            self._keep_what_leads_to(self._target)
        self._usable = self._usable and all(entry.repeatable for entry in self._entries)
        self.stop()
        self._on_backward(loss)

    def _keep_what_leads_to(self, target: int | None) -> None:
        wanted, kept = {target}, []
        for entry in reversed(self._entries):
            if wanted.intersection(entry.results):
                wanted.update(entry.places.values())
                kept.append(entry)
        self._entries = kept[::-1]

    def _note(
        self, func: Function, given: tuple[tuple[object, ...], dict[str, object]], out: object
    ) -> None:
        found = dict(tensors_in(*given))
        places = {p: self._slots[id(t)] for p, t in found.items() if id(t) in self._slots}
        writing = writes(getattr(func, "__name__", ""), given[1])
        target = given[0][0] if writing and given[0] else None
        results = [tensor for _, tensor in tensors_in((out, target), {})]
        if not places or not results:
            return
        if len(self._entries) >= _MOST or (writing and (0,) not in places):
            self._usable = False  # a write into what the record does not make again
            return
        self._writes |= writing
        others = [tensor for path, tensor in found.items() if path not in places]
        for tensor in results:
            if id(tensor) not in self._slots:
                self._slots[id(tensor)] = len(self._slots)
                self._kept.append(tensor)
        args, kwargs = replaced(*given, lambda path, tensor: tensor.detach())
        self._entries.append(
            _Entry(
                func=func,
                args=args,
                kwargs=kwargs,
                places=places,
                results=tuple(self._slots[id(t)] for t in results),
                repeatable=func is not torch.autograd.grad and not any(map(self._trained, others)),
            )
        )

    def _trained(self, tensor: Tensor) -> bool:
        return tensor.requires_grad and (not tensor.is_leaf or id(tensor) in self._moved)
