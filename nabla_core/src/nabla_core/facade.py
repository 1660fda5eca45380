"""Finds the public names of plugins through the entry-point group ``nabla.api``."""

from __future__ import annotations

from .declarations import Target
from .entry_points import entry_points

__all__ = ["API_GROUP", "public_name"]

API_GROUP = "nabla.api"
"""Public name → ``module:attribute``."""

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
}
"""Public name → the extra of the ``nabla`` distribution that brings it."""


def public_name(name: str) -> object:
    """Return what ``nabla.<name>`` is.

    Raises:
        ModuleNotFoundError: the distribution that brings it is not installed; says which one.
        AttributeError: there is no such name.
        PluginError: it is installed and cannot be imported.
    """
    for point in entry_points(API_GROUP):
        if point.name == name:
            return Target(name=f"nabla.{name}", target=point.value).load()
    if name in _EXTRAS:
        raise ModuleNotFoundError(
            f'nabla.{name} is not installed; run: pip install "nabla[{_EXTRAS[name]}]"',
            name=f"nabla.{name}",
        )
    raise AttributeError(f"module 'nabla' has no attribute {name!r}")
