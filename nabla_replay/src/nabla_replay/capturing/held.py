"""What a program holds where an epoch begins: tells whether it was changed between two epochs.

A replay executes steps. Weights that a program edits between two epochs, or an optimizer whose
state it throws away, are no work of a step, and would look like a step that went wrong.
"""

from __future__ import annotations

import zlib

from ..fingerprints.fingerprinter import Fingerprinter
from .digests import hyper_digest, state_digest
from .parts import Parts
from .stateful import state_of

__all__ = ["HeldState", "extra_digest", "held_digest"]

_SHARE = 0.25  # of the budget


class HeldState:
    """Digests parameters, buffers and optimizers where an epoch begins, if there is time for it.

    Args:
        parts: the program.
        fingerprinter: hashes its tensors.
        budget: share of the run that recording may take; ``None`` for any.
        whole_s: seconds that hashing everything takes.
    """

    def __init__(
        self, parts: Parts, fingerprinter: Fingerprinter, budget: float | None, whole_s: float
    ) -> None:
        self._parts = parts
        self._fingerprinter = fingerprinter
        self._share = None if budget is None else budget * _SHARE
        self._cost_s = whole_s
        self._last_s = fingerprinter.clock()

    def at_epoch(self) -> dict[str, object]:
        """Return the digests under their names; nothing if the last ones were too short ago."""
        now_s = self._fingerprinter.clock()
        if self._share is not None and self._cost_s > self._share * (now_s - self._last_s):
            return {}
        digests: dict[str, object] = {"held": held_digest(self._parts, self._fingerprinter)}
        if self._parts.extra:
            try:
                digests["held extra"] = extra_digest(self._parts, self._fingerprinter)
            except Exception:  # of the program's own state_dict; this is called within its loop
                self._share = 0.0  # checkpoints say what is wrong with it
        self._last_s = self._fingerprinter.clock()
        self._cost_s = self._last_s - now_s
        return digests


def held_digest(parts: Parts, fingerprinter: Fingerprinter) -> str:
    """Return eight hexadecimal digits for parameters, buffers and optimizers."""
    packed = _packed(fingerprinter, ("parameter", "buffer"))
    return f"{zlib.crc32(packed, hyper_digest(parts.optimizers)):08x}"


def extra_digest(parts: Parts, fingerprinter: Fingerprinter) -> str:
    """Return eight hexadecimal digits for the extra state: averages and the like."""
    others = state_digest({name: state_of(value) for name, value in parts.others.items()})
    return f"{zlib.crc32(_packed(fingerprinter, ('extra',)), others):08x}"


def _packed(fingerprinter: Fingerprinter, components: tuple[str, ...]) -> bytes:
    entries = enumerate(fingerprinter.entries)
    return fingerprinter.packed_entries(
        [index for index, entry in entries if entry.component in components]
    )
