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
_GROUP = "nabla.api"
_EXTRAS = {
    "check": "check",
    "tensor": "check",
    "shapes": "check",
    "guard": "guard",
    "sanitize": "guard",
    "shadow_rule": "guard",
    "trace": "trace",
    "capture": "replay",
    "replay": "replay",
    "bisect": "replay",
    "compare_ranks": "replay",
    "audit": "audit",
    "watch": "diagnose",
    "lint": "diagnose",
    "explain": "causal",
    "contracts": "contracts",
    "contract": "contracts",
    "precision": "precision",
    "report": "report",
    "integrations": "hf",
}
"""Public name → the extra of the ``nabla`` distribution that brings it."""

__all__ = ["__version__", *_CORE]


def __getattr__(name: str) -> object:
    if name in _CORE:
        return getattr(nabla_core, name)
    if name.startswith("_"):
        raise AttributeError(f"module 'nabla' has no attribute {name!r}")
    from nabla_core.declarations import Target
    from nabla_core.entry_points import entry_points

    for point in entry_points(_GROUP):
        if point.name == name:
            globals()[name] = found = Target(name=f"nabla.{name}", target=point.value).load()
            return found
    if name in _EXTRAS:
        raise ModuleNotFoundError(
            f'nabla.{name} is not installed; run: pip install "nabla[{_EXTRAS[name]}]"',
            name=f"nabla.{name}",
        )
    raise AttributeError(f"module 'nabla' has no attribute {name!r}")


def __dir__() -> list[str]:
    from nabla_core.entry_points import entry_points

    installed = {point.name for point in entry_points(_GROUP)}
    return sorted({*__all__, *installed})
