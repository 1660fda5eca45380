"""``import nabla``: one door to everything that is installed. Imports no torch.

Names of the core are here directly; those of plugins resolve through the entry-point group
``nabla.api`` (name → ``module:attribute``), so that a missing plugin says how to install it.
Use ``from nabla import check``; there are no submodules to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import nabla_core

if TYPE_CHECKING:
    from nabla_core import Issue as Issue
    from nabla_core import Rule as Rule
    from nabla_core import Session as Session
    from nabla_core import Severity as Severity
    from nabla_core import allow as allow

__version__ = nabla_core.__version__
_CORE = ("Issue", "Rule", "Session", "Severity", "allow")

__all__ = ["__version__", *_CORE]


def __getattr__(name: str) -> object:
    if name in _CORE:
        return getattr(nabla_core, name)
    if name.startswith("_"):
        raise AttributeError(f"module 'nabla' has no attribute {name!r}")
    from nabla_core.facade import public_name

    globals()[name] = found = public_name(name)
    return found


def __dir__() -> list[str]:
    from nabla_core.entry_points import entry_points
    from nabla_core.facade import API_GROUP

    installed = {point.name for point in entry_points(API_GROUP)}
    return sorted({*__all__, *installed})
