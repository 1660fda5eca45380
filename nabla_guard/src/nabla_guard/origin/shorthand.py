"""Calls and backward passes as they were given, written out only when somebody looks at the tape.

Most steps end well and nobody asks what happened in them. In a calm step the keeper therefore notes
only what will be gone or different later: which tensors at which version, the random state, the
line. A note keeps its tensors until the step is over, so that it is for small models only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ..taps.place import Line, is_of_user, user_line
from .ambient import Ambient, Generators, generators_now
from .references import Outside
from .root_state import RootState
from .tape import BackwardEntry, CallEntry, Tape

__all__ = [
    "BackwardNote",
    "CallNote",
    "Spot",
    "as_generators",
    "as_given",
    "draw_state",
    "line_of",
    "spot_above",
]

Spot = tuple[CodeType, int] | Line | None
"""A line of the user's code: where its number was not looked up yet, the code and the position."""

_ON_HOST_ONLY = not torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
draw_state: Callable[[], Tensor | Generators] = (
    torch.default_generator.get_state if _ON_HOST_ONLY else generators_now
)
"""Returns the states of the random generators, in the form that costs least."""
_OWN: set[str] = set()
_OTHERS: set[str] = set()


class CallNote(NamedTuple):
    """A call of a root module with nothing but plain tensors, which returned.

    Attributes:
        spot: where it was called.
        ambient: grad mode and autocast.
        module: the module.
        state: what is known of it.
        training: its training flag.
        args: what it was given.
        versions: the version counters of these before the call.
        drawn: :func:`draw_state` before the call; ``None`` when it does not draw.
        version: moves with every change of its parameters.
        output: what it returned.
    """

    spot: Spot
    ambient: Ambient
    module: Module
    state: RootState
    training: bool
    args: tuple[Tensor, ...]
    versions: list[int]
    drawn: Tensor | Generators | None
    version: int
    output: object

    def write(self, tape: Tape) -> None:
        """Make the entry that would have been made at once."""
        first = self.args[0] if self.args else None
        entry = CallEntry(
            place=line_of(self.spot),
            ambient=self.ambient,
            args=tuple(map(as_given, map(tape.freeze, self.args), self.versions)),
            module=self.module,
            has_parameters=self.state.has_parameters,
            training=self.training,
            generators=as_generators(self.drawn),
            version=self.version,
            shape=() if first is None else first.shape,
        )
        tape.append(entry, self.output)


class BackwardNote(NamedTuple):
    """An accumulating backward pass from one root.

    Attributes:
        spot: where it was called.
        ambient: grad mode and autocast.
        roots: the roots.
        args: what else the engine was given.
        kwargs: the same by name.
    """

    spot: Spot
    ambient: Ambient
    roots: Sequence[Tensor]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    def write(self, tape: Tape) -> None:
        """Make the entry that would have been made at once."""
        entry = BackwardEntry(
            place=line_of(self.spot),
            ambient=self.ambient,
            args=tape.freeze_all(self.args),
            kwargs={name: tape.freeze(value) for name, value in self.kwargs.items()},
            roots=tape.freeze_all(self.roots),
        )
        tape.append(entry, None)


def spot_above(depth: int) -> Spot:
    """Return the innermost line of the user's code.

    Args:
        depth: how many of the innermost frames are certainly not the user's.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if name in _OTHERS:
            frame = frame.f_back
        elif name in _OWN:
            return code, frame.f_lasti
        else:
            (_OWN if is_of_user(name) else _OTHERS).add(name)
    return user_line()


def line_of(spot: Spot) -> Line | None:
    """Look up the number of a line."""
    if spot is None or isinstance(spot, Line):
        return spot
    code, position = spot
    for start, end, number in code.co_lines():
        if start <= position < end and number is not None:
            return Line(code.co_filename, number, code.co_name)
    return Line(code.co_filename, code.co_firstlineno, code.co_name)


def as_generators(drawn: Tensor | Generators | None) -> Generators | None:
    """Return what :data:`draw_state` returned as the states of all generators."""
    return Generators(drawn) if isinstance(drawn, Tensor) else drawn


def as_given(frozen: object, version: int) -> object:
    """Take an argument back to its version when it was given."""
    if isinstance(frozen, Outside) and frozen.version != version:
        return Outside(frozen.tensor, version, frozen.cut)
    return frozen
