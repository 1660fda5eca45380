"""What can go wrong with a tracker."""

from __future__ import annotations

from nabla_core.errors import NablaError

__all__ = ["NoActiveRunError"]


class NoActiveRunError(NablaError):
    """The tracker has no run of the person's own to which anything could be sent."""
