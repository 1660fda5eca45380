"""Says where two environments differ, and whether a replay can still be exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nabla_core.issue import Issue
from nabla_core.severity import Severity

from ..rules import ENVIRONMENT_DIFFERS
from .settings import SETTINGS, Effect, Setting

__all__ = ["Difference", "differences", "environment_issues"]

_UNSET = "(not set)"
_UNKNOWN = Setting("may break", "nothing is known about it", "{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that is not as it was recorded.

    Attributes:
        name: of the setting.
        recorded: value in the run; ``"(not set)"`` where it had none.
        now: value here.
        effect: whether that changes the bits of a step.
        why: why it does.
        restore: how to get the recorded value back.
    """

    name: str
    recorded: str
    now: str
    effect: Effect
    why: str
    restore: str

    @property
    def breaks(self) -> bool:
        """Whether bit-exactness cannot be expected."""
        return self.effect == "breaks"

    def __str__(self) -> str:
        return f"{self.name} was {self.recorded} and is {self.now}"


def differences(
    recorded: Mapping[str, object], now: Mapping[str, object]
) -> tuple[Difference, ...]:
    """Compare two environments; what breaks comes first.

    A setting that only one side could read (a GPU, a loader) is told only where the other side says
    that it is not set: environment variables.
    """
    found = list(_differing(recorded, now))
    rank = {"breaks": 0, "may break": 1, "harmless": 2}
    order = {name: index for index, name in enumerate(SETTINGS)}
    found.sort(key=lambda one: (rank[one.effect], order.get(one.name, len(order))))
    return tuple(found)


def environment_issues(found: tuple[Difference, ...]) -> Iterator[Issue]:
    """Yield one issue per difference that can matter; harmless ones are no news."""
    for one in found:
        if one.effect == "harmless":
            continue
        yield ENVIRONMENT_DIFFERS.issue(
            f"{one}: {one.why}; bit-exact steps {_outlook(one.effect)}. To get it back: "
            f"{one.restore}.",
            severity=Severity.MEDIUM if one.breaks else Severity.INFO,
            setting=one.name,
            recorded=one.recorded,
            now=one.now,
        )


def _outlook(effect: Effect) -> str:
    return "cannot be expected" if effect == "breaks" else "may be lost"


def _differing(recorded: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Difference]:
    for name in dict.fromkeys((*recorded, *now)):
        there, here = recorded.get(name), now.get(name)
        if there == here or (not _is_variable(name) and (there is None or here is None)):
            continue
        setting = SETTINGS.get(name, _UNKNOWN)
        yield Difference(
            name=name,
            recorded=_UNSET if there is None else str(there),
            now=_UNSET if here is None else str(here),
            effect=setting.effect,
            why=setting.why,
            restore=f"unset {name}" if there is None else setting.restore.format(there),
        )


def _is_variable(name: str) -> bool:
    return name.replace("_", "").isupper() and "_" in name or name == "PYTHONHASHSEED"
