"""The checks: small classes that look at a chart and decide rules."""

from __future__ import annotations

__all__: list[str] = []
