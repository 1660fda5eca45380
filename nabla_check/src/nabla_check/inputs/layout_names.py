"""Names of memory layouts; imports nothing, so that options and command lines can list them."""

from __future__ import annotations

from typing import Literal

__all__ = ["LAYOUTS", "Layout"]

Layout = Literal[
    "contiguous", "transposed", "strided", "sliced", "expanded", "channels_last", "rows"
]
LAYOUTS: tuple[Layout, ...] = ("contiguous", "transposed", "strided", "sliced", "expanded")
"""What a recipe may ask for."""
