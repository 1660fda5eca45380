"""A picture of one pixel per cell as a PNG within the page: thousands of cells in a few kilobytes.

Source: W3C, Portable Network Graphics Specification (Third Edition), colour type 3.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

__all__ = ["data_uri"]

Colour = tuple[int, int, int]


def data_uri(pixels: Sequence[bytes], palette: Sequence[Colour], clear: int) -> str:
    """Return a ``data:`` address of a PNG.

    Args:
        pixels: rows of indices into ``palette``.
        palette: at most 256 colours.
        clear: index of the colour that is not drawn.
    """
    width, height = len(pixels[0]), len(pixels)
    alpha = bytes(0 if index == clear else 255 for index in range(len(palette)))
    lines = b"".join(b"\0" + row for row in pixels)
    parts = [
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", bytes(part for colour in palette for part in colour)),
        _chunk(b"tRNS", alpha),
        _chunk(b"IDAT", zlib.compress(lines, 6)),
        _chunk(b"IEND", b""),
    ]
    return "data:image/png;base64," + base64.b64encode(b"".join(parts)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
