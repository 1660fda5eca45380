"""What the user's code did since the last optimizer step, kept so that it can be done again.

Values that an earlier entry made are kept as references to that entry, never as tensors: a tape
holds the batch and the targets, but neither activations nor an autograd graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import Module

from ..taps.place import Line
from .ambient import Ambient, Generators
from .nested import leaves
from .references import GradientOf, Made, Outside, made_in, version_of

__all__ = [
    "BackwardEntry",
    "CallEntry",
    "Entry",
    "OpEntry",
    "Tape",
    "Write",
]

_DEPTH = 5
_ATOMS = frozenset({int, float, bool, str, type(None)})


class Write(NamedTuple):
    """A change of memory that was there before the step.

    Attributes:
        line: the user's line.
        number: serial number of the last entry before it.
        harmless: it cannot have made a finite value infinite or NaN.
    """

    line: Line
    number: int
    harmless: bool


@dataclass(slots=True, kw_only=True)
class Entry:
    """Something that was done.

    Attributes:
        number: serial number, from the tape.
        place: the user's line.
        ambient: grad mode and autocast at that time.
        args: positional arguments, frozen.
        kwargs: keyword arguments, frozen.
    """

    place: Line | None
    ambient: Ambient
    number: int = 0
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class OpEntry(Entry):
    """A function of torch that the user's code called outside of any module.

    Attributes:
        function: the function.
        generators: state of the random generators at its start; ``None`` when it cannot draw.
        differentiates: a transform of ``torch.func`` in which derivatives are taken.
    """

    function: Callable[..., object]
    generators: Generators | None = None
    differentiates: bool = False


@dataclass(slots=True, kw_only=True)
class CallEntry(Entry):
    """A root module that was called.

    Attributes:
        module: the module.
        has_parameters: whether it is a model, not only a function such as a loss.
        training: its training flag.
        generators: state of the random generators at its start; ``None`` when it cannot draw.
        version: moves with every change of its parameters.
        mutated: it changed one of its arguments in place.
        shape: of its first tensor; empty when not known.
    """

    module: Module
    has_parameters: bool
    training: bool
    generators: Generators | None
    version: int = 0
    mutated: bool = False
    shape: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class BackwardEntry(Entry):
    """An accumulating backward pass; ``args`` are the roots and the arguments of the engine."""

    roots: tuple[object, ...] = ()
    loss: float | None = None


class Tape:
    """Entries in order, and which living tensor was made by which of them.

    Attributes:
        entries: what was done.
        problems: why the step cannot be executed again in full.
        last: number of the last entry.
        passed: number of the last backward pass that was forgotten.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.problems: list[str] = []
        self._made: dict[int, tuple[weakref.ref[Tensor], Made | GradientOf]] = {}
        self._read: dict[int, weakref.ref[Tensor]] = {}  # the gradient that was read of a leaf
        self._borrowed: dict[int, weakref.ref[Tensor]] = {}
        self._writes: dict[int, Write] = {}
        self.last = self.passed = 0

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry, outcome: object) -> None:
        """Add an entry that made the tensors in ``outcome``; it gets its number here."""
        entry.number = self.last = self.last + 1
        self.entries.append(entry)
        if outcome is None:
            return
        made = self._made
        if isinstance(outcome, Tensor):
            made[id(outcome)] = (weakref.ref(outcome), Made(entry.number, 0))
            return
        for index, tensor in enumerate(leaves(outcome)):
            made[id(tensor)] = (weakref.ref(tensor), Made(entry.number, index))

    def note_gradient(self, leaf: Tensor, grad: Tensor) -> None:
        """Note that the gradient of a leaf was read."""
        if not self.knows(grad):
            reference = self._read[id(leaf)] = weakref.ref(grad)
            self._made[id(grad)] = reference, GradientOf(leaf)

    def take_gradient(self, leaf: Tensor) -> Tensor | None:
        """Return the gradient that was read of a leaf, if it was, and forget that."""
        reference = self._read.pop(id(leaf), None)
        grad = None if reference is None else reference()
        known = None if grad is None else self._made.get(id(grad))
        if known is None or not isinstance(known[1], GradientOf) or known[1].leaf is not leaf:
            return None
        return grad

    def borrow(self, source: object, view: object) -> None:
        """Note that a tensor made by an entry shares the memory of one that was there before."""
        if not isinstance(source, Tensor) or not isinstance(view, Tensor):
            return
        if self.is_outside(source) and _memory(source) == _memory(view):
            self._borrowed[id(view)] = weakref.ref(view)

    def is_outside(self, tensor: Tensor) -> bool:
        """Whether the memory of a tensor was there before the step."""
        borrowed = self._borrowed.get(id(tensor))
        return not self.knows(tensor) or (borrowed is not None and borrowed() is tensor)

    def note_write(self, tensor: Tensor, line: Line | None, *, harmless: bool = False) -> None:
        """Note where memory that was there before was written to.

        Args:
            tensor: what was written to.
            line: the user's line.
            harmless: it cannot have made a finite value infinite; then an earlier write that can
                is remembered.
        """
        memory = _memory(tensor)
        if memory is None or line is None:
            return
        known = self._writes.get(memory)
        if known is None or not harmless or known.harmless:
            self._writes[memory] = Write(line, self.last, harmless)

    def written(self, tensor: Tensor) -> Write | None:
        """Return the last write of the user's code to a tensor outside of modules, if any."""
        return self._writes.get(_memory(tensor) or 0)

    def written_at(self, tensor: Tensor) -> Line | None:
        """Return where a write may have put a value into a tensor that is not finite."""
        write = self.written(tensor)
        return None if write is None or write.harmless else write.line

    def forget_writes(self, number: int) -> None:
        """Forget writes before an entry with this number would have been made."""
        if self._writes:
            self._writes = {m: write for m, write in self._writes.items() if write.number >= number}

    def knows(self, tensor: Tensor) -> bool:
        """Whether an entry made this tensor."""
        known = self._made.get(id(tensor))
        return known is not None and known[0]() is tensor

    @property
    def has_writes(self) -> bool:
        """Whether any change of memory that was there before is known."""
        return bool(self._writes)

    def calls_since(self, number: int) -> list[CallEntry]:
        """Return the calls of root modules after the entry with this number."""
        return [e for e in self.entries if e.number > number and isinstance(e, CallEntry)]

    def has_call_of(self, module: Module) -> bool:
        """Whether an entry called this module."""
        return any(call.module is module for call in self.calls_since(0))

    def problem(self, text: str) -> None:
        """Note why the step cannot be executed again in full."""
        if text not in self.problems:
            self.problems.append(text)

    def freeze_all(self, values: Sequence[object], depth: int = 0) -> tuple[object, ...]:
        """Return :meth:`freeze` of each value, without a call for a plain tensor or a number."""
        made = self._made
        frozen: list[object] = []
        for value in values:
            kind = type(value)
            if kind in _ATOMS or (kind is tuple and not value):
                frozen.append(value)
                continue
            if kind is tuple and depth <= _DEPTH:
                frozen.append(self.freeze_all(value, depth + 1))  # type: ignore[arg-type]
                continue
            if not isinstance(value, Tensor) or kind is not Tensor:
                frozen.append(self.freeze(value, depth))
                continue
            known = made.get(id(value))
            if known is not None and known[0]() is value:
                frozen.append(known[1])
            else:
                version = -1 if value.is_inference() else value._version
                frozen.append(Outside(value, version, value.grad_fn is not None))
        return tuple(frozen)

    def freeze(self, value: object, depth: int = 0) -> object:
        """Return ``value`` with every tensor in it replaced by a reference."""
        if isinstance(value, Tensor):
            known = self._made.get(id(value))
            if known is not None and known[0]() is value:
                return known[1]
            return _outside(value)
        kind = type(value)
        if depth > _DEPTH or kind in _ATOMS:
            return value
        if kind is list:
            return [self.freeze(item, depth + 1) for item in value]  # type: ignore[attr-defined]
        if kind is tuple:
            return self.freeze_all(value, depth + 1)  # type: ignore[arg-type]
        if kind is dict:
            return {key: self.freeze(item, depth + 1) for key, item in value.items()}  # type: ignore[attr-defined]
        if hasattr(kind, "__next__"):
            self.problem("a generator was passed on, and it can be read only once")
        return value

    def keep_only(self, wanted: Callable[[Entry], bool]) -> None:
        """Forget all other entries; what they made counts as made outside from now on."""
        self.entries = [entry for entry in self.entries if wanted(entry)]
        kept = {entry.number for entry in self.entries}
        self._made = {
            key: known
            for key, known in self._made.items()
            if known[1].entry in kept and known[0]() is not None
        }

    def disown(self, number: int, *, plain: bool) -> None:
        """Take what an entry made, and trained tensors, as given: they are in memory to start from.

        Else a tensor of weights that is replaced in each step would depend on all steps before.

        Args:
            number: of the entry.
            plain: so are tensors without gradient, such as the weights of a functional transform.
        """
        self._made = {
            key: (reference, made)
            for key, (reference, made) in self._made.items()
            if made.entry != number
            and (tensor := reference()) is not None
            and (tensor.grad_fn is not None or not (plain or tensor.requires_grad))
        }

    def clear(self) -> None:
        """Forget everything."""
        if self.entries or self.problems or self._made or self._borrowed or self._writes:
            for held in (self.entries, self.problems, self._made, self._borrowed, self._writes):
                held.clear()
            self._read.clear()

    def living(self) -> set[int]:
        """Return the entries on which a living tensor of an autograd graph depends."""
        needed = {
            made.entry
            for reference, made in self._made.values()
            if (tensor := reference()) is not None and tensor.requires_grad
        }
        for entry in reversed(self.entries):
            if entry.number in needed:
                needed |= made_in(entry.args, entry.kwargs)
        return needed


def _outside(tensor: Tensor) -> Outside:
    return Outside(tensor, version_of(tensor), tensor.grad_fn is not None)


def _memory(tensor: Tensor) -> int | None:
    if isinstance(tensor, FakeTensor):
        return None
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return None
