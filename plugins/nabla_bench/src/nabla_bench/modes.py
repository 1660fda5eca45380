"""The ways of watching whose cost is measured; each is entered as a person enters it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

from nabla_core.facade import public_name

from .workloads import Loop

__all__ = ["CONTROL", "MODES", "WatchMode"]

_SELECT = "NABLA_SELECT"


class Finished(Protocol):
    """What ``nabla.watch`` returns, as far as it is used here."""

    def finish(self) -> object:
        """Stop watching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMode:
    """One way to watch a loop.

    Attributes:
        name: how it is chosen.
        summary: what is watched.
        needs: public names of nabla that it calls.
        enter: begins to watch, until the context is left.
        divisor: by which the steps are cut, where one step costs many.
        first_steps: steps until it looks at a run as closely as in the long run.
        learns: whether it gets to know a loop first.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    enter: Callable[[Loop], AbstractContextManager[object]]
    divisor: int = 1
    first_steps: int = 0
    learns: bool = True

    @property
    def missing(self) -> str:
        """Why it cannot be measured here; empty if it can."""
        for name in self.needs:
            try:
                public_name(name)
            except ModuleNotFoundError as error:
                return str(error)
        return ""


def _call(name: str) -> Callable[..., AbstractContextManager[object]]:
    return cast("Callable[..., AbstractContextManager[object]]", public_name(name))


def _guard(mode: str) -> Callable[[Loop], AbstractContextManager[object]]:
    def enter(loop: Loop) -> AbstractContextManager[object]:
        return _call("guard")(loop.model, optimizer=loop.optimizer, mode=mode)

    return enter


@contextmanager
def _audit(loop: Loop) -> Iterator[None]:
    os.environ[_SELECT] = "AUD"
    try:
        watching = _guard("light")(loop)
    finally:
        del os.environ[_SELECT]
    with watching:
        yield


@contextmanager
def _watch(loop: Loop) -> Iterator[None]:
    watch = cast("Callable[..., Finished]", public_name("watch"))
    run = watch(loop.model, loop.optimizer, quiet=True)
    try:
        yield
    finally:
        run.finish()


def _capture(loop: Loop) -> AbstractContextManager[object]:
    return _call("capture")(loop.model, loop.optimizer, root="runs")


CONTROL = WatchMode(
    name="bare",
    summary="nothing: what noise alone makes",
    needs=(),
    enter=lambda loop: nullcontext(),
    learns=False,
)
"""The bare loop against itself: a ratio within its spread says nothing."""

MODES = (
    WatchMode(
        name="light",
        summary="losses, gradients and parameters",
        needs=("guard",),
        enter=_guard("light"),
    ),
    WatchMode(
        name="standard",
        summary="also the range of every layer",
        needs=("guard",),
        enter=_guard("standard"),
    ),
    WatchMode(
        name="deep",
        summary="also the result of every op",
        needs=("guard",),
        enter=_guard("deep"),
        divisor=8,
    ),
    WatchMode(
        name="audit",
        summary="light, with the rules of the audit only",
        needs=("guard", "audit"),
        enter=_audit,
    ),
    WatchMode(
        name="watch",
        summary="also the course of the run and its layers",
        needs=("guard", "watch"),
        enter=_watch,
        first_steps=104,  # the first hundred are measured closely
    ),
    WatchMode(
        name="capture",
        summary="a record that can be replayed",
        needs=("guard", "capture"),
        enter=_capture,
    ),
)
"""In the order in which they are measured."""
