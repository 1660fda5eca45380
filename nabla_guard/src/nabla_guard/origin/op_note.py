"""Calls outside of modules as they were given, written out only when somebody looks at the tape.

Like the notes of :mod:`.shorthand`, for the functions of torch that the user's own code calls. A
note keeps its tensors until the step is over, so that only calls on few numbers are noted so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import EllipsisType, NoneType
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from .ambient import Ambient, Generators, ambient_now
from .references import GradientOf, Made, Outside
from .shorthand import Spot, as_generators, as_given, line_of, spot_above
from .tape import OpEntry, Tape

__all__ = ["VIEWS", "OpNote", "op_note"]

VIEWS = frozenset(
    {
        "__get__",
        "__getitem__",
        "detach",
        "flatten",
        "narrow",
        "reshape",
        "select",
        "squeeze",
        "t",
        "transpose",
        "unsqueeze",
        "view",
    }
)
"""Functions whose result may share the memory of their first argument."""

_MAX_MADE = 1 << 14
_MAX_GIVEN = 1 << 18
_FRAMES = 4  # this many of the innermost functions are ours
_TENSORS = frozenset({Tensor, Parameter})
_version = attrgetter("_version")
_ATOMS = frozenset(
    {int, float, bool, str, NoneType, slice, EllipsisType, torch.dtype, torch.device}
)
_GROUPS = frozenset({tuple, list, torch.Size})


class OpNote(NamedTuple):
    """A call that returned one small tensor.

    Attributes:
        spot: where it was called.
        ambient: grad mode and autocast.
        function: what was called.
        args: what it was given.
        kwargs: the same by name.
        versions: the version counters of all the tensors in these, in order.
        drawn: the random states before the call; ``None`` when it does not draw.
        differentiates: derivatives were taken inside.
        outcome: what it returned.
    """

    spot: Spot
    ambient: Ambient
    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    versions: list[int]
    drawn: Tensor | Generators | None
    differentiates: bool
    outcome: Tensor

    def write(self, tape: Tape) -> None:
        """Make the entry that would have been made at once."""
        versions = iter(self.versions)
        entry = OpEntry(
            place=line_of(self.spot),
            ambient=self.ambient,
            args=cast("tuple[object, ...]", _as_then(tape.freeze_all(self.args), versions)),
            kwargs={
                name: _as_then(tape.freeze(value), versions) for name, value in self.kwargs.items()
            },
            function=self.function,
            generators=as_generators(self.drawn),
            differentiates=self.differentiates,
        )
        tape.append(entry, self.outcome)
        if getattr(self.function, "__name__", "") in VIEWS:
            tape.borrow(self.args[0], self.outcome)


def op_note(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    outcome: Tensor,
    *,
    drawn: Tensor | Generators | None = None,
    differentiates: bool = False,
) -> OpNote | None:
    """Note a call; ``None`` where more has to be known of it than what it was given.

    That is so for many numbers, for a result that is written to memory that was given, and for
    arguments that are no plain tensors, numbers and names.

    Args:
        function: changes none of its arguments.
        args: what it was given.
        kwargs: the same by name.
        outcome: what it returned.
        drawn: the random states before the call; ``None`` when it does not draw.
        differentiates: derivatives were taken inside.
    """
    tensors: list[Tensor] = []
    if not _are_plain(args, tensors) or (kwargs and not _are_plain(kwargs.values(), tensors)):
        return None
    if not tensors or "out" in kwargs or outcome.numel() > _MAX_MADE:
        return None
    if sum(map(Tensor.numel, tensors)) > _MAX_GIVEN:
        return None
    try:
        versions = [*map(_version, tensors)]
    except RuntimeError:  # made in inference mode: it has none
        return None
    if list in map(type, args):  # it may be changed later
        args = tuple([[*value] if type(value) is list else value for value in args])
    spot, ambient = spot_above(_FRAMES), ambient_now()
    known = (spot, ambient, function, args, kwargs, versions, drawn, differentiates, outcome)
    return tuple.__new__(OpNote, known)  # its own way costs twice


def _are_plain(values: Iterable[object], tensors: list[Tensor], depth: int = 0) -> bool:
    """Whether values are tensors, atoms, and groups of them; the tensors are collected."""
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            tensors.append(value)  # type: ignore[arg-type]
        elif kind in _GROUPS:
            if depth or not _are_plain(value, tensors, 1):  # type: ignore[arg-type]
                return False
        elif kind not in _ATOMS:
            return False
    return True


def _as_then(frozen: object, versions: Iterator[int]) -> object:
    """Take references back to the versions of their tensors when these were given."""
    if isinstance(frozen, (Made, Outside, GradientOf)):
        return as_given(frozen, next(versions))
    if type(frozen) is tuple:
        return tuple([_as_then(item, versions) for item in frozen])
    if type(frozen) is list:
        return [_as_then(item, versions) for item in frozen]
    return frozen
