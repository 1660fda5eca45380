"""What a person may ask of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TypedDict

from torch.nn import Module

from nabla_core.errors import UsageError

__all__ = ["ReplayArguments", "ReplayOptions", "program_arguments", "replay_options"]

_PARTS = ("build", "model", "optimizer", "scheduler", "scaler", "extra", "loader", "step_fn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is replayed.

    Attributes:
        from_step: first step to compare; by default the first that was recorded.
        to_step: last step to compare; by default the last that was recorded.
        localize: also find the module in which the first divergence begins.
        reference: another ``build``, whose program is right: a divergence in a step whose modules
            were not recorded is traced by executing that step with both.
        rank: whose record.
        progress: told the steps done and to do.
    """

    from_step: int | None = None
    to_step: int | None = None
    localize: bool = False
    reference: Callable[[], object] | None = None
    rank: int = 0
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        first, last = self.from_step, self.to_step
        if first is not None and last is not None and first > last:
            raise UsageError(f"replay(from_step={first}, to_step={last}): ends before it begins")


class ReplayArguments(TypedDict, total=False):
    """Keyword arguments of :func:`nabla_replay.replay`: the program, and :class:`ReplayOptions`."""

    build: Callable[[], object] | None
    model: Module | None
    optimizer: object
    scheduler: object
    scaler: object
    extra: Mapping[str, object] | None
    loader: Iterable[object] | None
    step_fn: Callable[..., object] | None
    from_step: int | None
    to_step: int | None
    localize: bool
    reference: Callable[[], object] | None
    rank: int
    progress: Callable[[int, int], None] | None


def program_arguments(given: Mapping[str, object]) -> dict[str, object]:
    """Return those arguments that describe the program."""
    return {name: given[name] for name in _PARTS if name in given}


def replay_options(given: Mapping[str, object]) -> ReplayOptions:
    """Return those arguments that say what to replay.

    Raises:
        UsageError: one is unknown or out of range.
    """
    names = [field.name for field in fields(ReplayOptions)]
    unknown = [name for name in given if name not in names and name not in _PARTS]
    if unknown:
        raise UsageError(
            f"replay({unknown[0]}=...): unknown option; the options are "
            f"{', '.join((*_PARTS, *names))}"
        )
    return ReplayOptions(**{name: given[name] for name in names if name in given})  # type: ignore[arg-type]
