"""At what pace kinds of checks are asked: looked up once for all runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from nabla_core.rule import Rule

from .checks.check import Check, LayerCheck

__all__ = ["Pace", "pace_of"]

_METHODS = (
    "row",
    "record",
    "block",
    "validation",
    "layers",
    "ceilings",
    "pass_over",
    "idle_until",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What some kinds of checks do.

    Attributes:
        rules: what they decide, each once.
        places: method to the places of the kinds that have one of their own.
    """

    rules: tuple[Rule, ...]
    places: Mapping[str, tuple[int, ...]]

    def those(self, method: str, checks: tuple[Check, ...]) -> list[Check]:
        """Return those of the checks, given in the order of their kinds, that have the method."""
        return [checks[place] for place in self.places[method]]


@lru_cache(maxsize=64)
def pace_of(kinds: tuple[type[Check], ...]) -> Pace:
    """Return the pace of kinds of checks, in their order."""
    return Pace(
        rules=tuple(dict.fromkeys(rule for kind in kinds for rule in kind.rules)),
        places={method: _places(kinds, method) for method in _METHODS},
    )


def _places(kinds: tuple[type[Check], ...], method: str) -> tuple[int, ...]:
    plain = getattr(LayerCheck, method)
    return tuple(
        place for place, kind in enumerate(kinds) if getattr(kind, method, plain) is not plain
    )
