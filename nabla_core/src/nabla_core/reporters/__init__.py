"""Report formats of the core: console, json, github. Nothing is imported to list them."""

from __future__ import annotations

from ..declarations import Reporter

__all__ = ["REPORTERS"]

REPORTERS = (
    Reporter(
        name="console",
        target="nabla_core.reporters.console:render",
        summary="text for people",
        suffixes=(".txt",),
    ),
    Reporter(
        name="json",
        target="nabla_core.reporters.json:render",
        summary="everything, strict JSON (schema 1.1)",
        suffixes=(".json",),
    ),
    Reporter(
        name="github",
        target="nabla_core.reporters.github:render",
        summary="annotations of GitHub Actions",
    ),
)
