"""Hook implementations of nabla-keras."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.declarations import Adapter


@hookimpl
def nabla_adapters() -> Iterable[Adapter]:
    """Declare ``nabla.integrations.keras``."""
    from .declared import ADAPTERS

    return ADAPTERS
