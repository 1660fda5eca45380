"""Counters of a program's own: where they were at a checkpoint follows from how they go on.

A program that counts its steps by itself begins at its first number when it is built anew, and a
checkpoint does not hold where it was. A number that grows by the same amount in every step is put
there; one that is wrong does not give the recorded bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from .own_state import OwnState, own_state, put_number
from .program import Program

__all__ = ["Counter", "counters_in", "held_by", "put_counters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A whole number that grows by the same amount in every step.

    Attributes:
        path: where the program holds it.
        first: before its first step.
        stride: per step.
    """

    path: str
    first: int
    stride: int


def held_by(program: Program) -> OwnState:
    """Return what a program holds beside its parts."""
    return own_state(program.roots, program.parts)


def counters_in(before: OwnState, after: OwnState, steps: int) -> tuple[Counter, ...]:
    """Return the counters of a program that has executed some steps.

    Args:
        before: what it held when it was built.
        after: what it holds now.
        steps: that lie in between, one or more.
    """
    found: list[Counter] = []
    for path, one in after.items():
        first = before[path].value if path in before else None
        now = one.value
        if type(first) is not int or type(now) is not int or now == first:
            continue
        stride, rest = divmod(now - first, steps)
        if not rest:
            found.append(Counter(path=path, first=first, stride=stride))
    return tuple(found)


def put_counters(program: Program, counters: tuple[Counter, ...], steps: int) -> None:
    """Set the counters of a program as they are after so many steps."""
    if not counters:
        return
    held = held_by(program)
    for one in counters:
        if one.path in held:
            put_number(held[one.path], one.first + one.stride * steps)
