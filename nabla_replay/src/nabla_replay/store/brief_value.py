"""Loss and anchor of a step in brief, as one short text: ``@5:`` and hexadecimal digits.

The digits are those of the loss as a little-endian double, then of the packed fingerprint. Right
after a step of the program every line of code is cold, and this takes half as long as a hexadecimal
float and base64 do.
"""

from __future__ import annotations

import re
import struct

from ..errors import RecordError

__all__ = ["brief_value", "read_brief_value"]

_DOUBLE = struct.Struct("<d")
_pack = _DOUBLE.pack
_WRITTEN = re.compile(r"([^:]{0,32}):([0-9a-f]{16})((?:[0-9a-f]{8}){0,2})", re.ASCII)


def brief_value(anchor: str, loss: float, packed: bytes) -> str:
    """Return the text.

    Args:
        anchor: name of the vector that holds the fingerprint; empty for none.
        loss: exact value.
        packed: the fingerprint, up to 8 bytes.
    """
    return f"{anchor}:{(_pack(loss) + packed).hex()}"


def read_brief_value(text: str) -> tuple[str, float, bytes]:
    """Undo :func:`brief_value`.

    Raises:
        RecordError: the text has another form.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None or bool(found[1]) != bool(found[3]):
        raise RecordError(f"'q' is {text[:40]!r}, not a name, a loss and a fingerprint")
    (loss,) = _DOUBLE.unpack(bytes.fromhex(found[2]))
    return found[1], loss, bytes.fromhex(found[3])
