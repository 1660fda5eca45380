"""A file of tensors in a few facts; its header is read, its tensors are not made."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from nabla_core.artifacts.opening import open_regular
from nabla_core.errors import InputError

from ..codec.container import LENGTH_BYTES, Frame, header_length, parse_frame
from ..errors import StateFormatError
from ..rules import RECORD_CORRUPT
from .inspection import Fact, Inspection, Kind, size_text

__all__ = ["inspect_state"]

_MAX_BYTES = 1 << 44
_TEXT = frozenset((*range(32, 127), 9, 10, 13))
_SIGNS = (
    (b"PK\x03\x04", "a zip, as torch.save writes it"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a numpy array"),
    (b"GGUF", "a GGUF model"),
)


def inspect_state(path: Path) -> Inspection:
    """Say what a file holds from its first bytes, and from its header if it is a state.

    Raises:
        UnsafePathError: it is a link, a pipe or a device.
        InputError: it is missing or cannot be read.
    """
    descriptor = open_regular(path, max_bytes=_MAX_BYTES)
    try:
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, LENGTH_BYTES, 0)
        kind = _foreign_kind(head)
        if kind:
            return _foreign(path, size, kind)
        frame = _frame(descriptor, head, size)
    except StateFormatError as error:
        issue = RECORD_CORRUPT.issue(f"The file is no state file, or a damaged one: {error}.")
        facts = (("size", size_text(size)),)
        return Inspection(path=str(path), kind="state file", facts=facts, issues=(issue,))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    name: Kind = "state file" if frame.is_state else "safetensors file"
    return Inspection(path=str(path), kind=name, facts=tuple(_facts(frame, size)))


def _frame(descriptor: int, head: bytes, size: int) -> Frame:
    length = header_length(head, size)
    header = os.pread(descriptor, length, LENGTH_BYTES)
    if len(header) != length:
        raise StateFormatError("became shorter while it was read")
    return parse_frame(header, size - LENGTH_BYTES - length)


def _facts(frame: Frame, size: int) -> Iterator[Fact]:
    for key in ("schema", "run_id", "step", "rank", "segment"):
        if key in frame.metadata:
            yield key, str(frame.metadata[key])[:100]
    tree = frame.metadata.get("tree")
    if isinstance(tree, dict):
        yield "parts", ", ".join(key[:60] for key in list(tree)[:20])
    kinds = Counter(slot.dtype for slot in frame.slots)
    listed = ", ".join(f"{count} {dtype}" for dtype, count in kinds.most_common())
    yield "tensors", f"{len(frame.slots)} ({listed})" if listed else "none"
    largest = max(frame.slots, key=lambda slot: slot.end - slot.begin, default=None)
    if largest is not None:
        yield "largest", f"{largest.name[:100]} {largest.dtype} {list(largest.shape)}"
    yield "size", size_text(size)
    yield "checksum", "not in the file: the log of its run holds it (nabla inspect the run)"


def _foreign_kind(head: bytes) -> str:
    for sign, words in _SIGNS:
        if head.startswith(sign):
            return words
    if len(head) == LENGTH_BYTES and all(octet in _TEXT for octet in head):
        return "text"  # as a length, it would be beyond any file
    return ""


def _foreign(path: Path, size: int, kind: str) -> Inspection:
    facts = [("looks like", kind), ("size", size_text(size))]
    if "zip" in kind or "pickle" in kind:
        facts.append(("caution", "reading it can run code; it was not read"))
        facts.append(("import", f"nabla import-checkpoint {path.name} OUT.safetensors"))
    return Inspection(path=str(path), kind="foreign file", facts=tuple(facts))
