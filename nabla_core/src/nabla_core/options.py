"""Declaring an option of a plugin: a default, a help text and a range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

__all__ = ["OptionInfo", "option", "option_info"]

T = TypeVar("T")
_KEY = "nabla"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionInfo:
    """What is known of an option besides its type and default.

    Attributes:
        help: one line for ``nabla config`` and the generated pages.
        minimum: smallest allowed number.
        maximum: largest allowed number.
    """

    help: str = ""
    minimum: float | None = None
    maximum: float | None = None


def option(
    default: T, help: str, *, minimum: float | None = None, maximum: float | None = None
) -> T:
    """Declare a field of a frozen options dataclass.

    Args:
        default: value when nothing is configured.
        help: one line.
        minimum: smallest allowed number, inclusive.
        maximum: largest allowed number, inclusive.
    """
    info = OptionInfo(help=help, minimum=minimum, maximum=maximum)
    return field(default=default, metadata={_KEY: info})


def option_info(metadata: object) -> OptionInfo:
    """Return what a dataclass field's ``metadata`` says, or an empty description."""
    found = metadata.get(_KEY) if hasattr(metadata, "get") else None
    return found if isinstance(found, OptionInfo) else OptionInfo()
