"""Which noted parts of a step its loss depends on, changes in place included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..origin.op_note import VIEWS
from ..origin.references import Made, made_in
from ..origin.tape import Entry, OpEntry
from ..origin.writes import is_in_place

__all__ = ["needed"]


def needed(entries: Sequence[Entry], roots: Sequence[object], before: int) -> list[Entry]:
    """Return the entries on which tensors depend, in the order in which they ran.

    Args:
        entries: what was done.
        roots: frozen tensors.
        before: number of the entry that uses them.

    Raises:
        LookupError: some of them depend on what is not among the entries.
    """
    owners = _owners(entries)
    wanted = made_in(*roots)
    memories = {owners.get(number, number) for number in wanted}
    found: list[Entry] = []
    for entry in reversed(entries):
        if entry.number >= before:
            continue
        if entry.number in wanted or _written(entry, owners) in memories:
            found.append(entry)
            uses = made_in(entry.args, entry.kwargs)
            wanted |= uses
            memories |= {owners.get(number, number) for number in uses}
    if wanted - {entry.number for entry in found}:
        raise LookupError("the loss uses something that was computed before this step")
    return found[::-1]


def _owners(entries: Sequence[Entry]) -> dict[int, int]:
    """The entry that made the memory in which each view and each change in place lies."""
    owners: dict[int, int] = {}
    for entry in entries:
        name = _name(entry)
        if name in VIEWS or is_in_place(name):
            first = _first(entry)
            if first is not None:
                owners[entry.number] = owners.get(first, first)
    return owners


def _written(entry: Entry, owners: Mapping[int, int]) -> int | None:
    """The entry that made the memory which an entry changes in place."""
    first = _first(entry) if is_in_place(_name(entry)) else None
    return None if first is None else owners.get(first, first)


def _first(entry: Entry) -> int | None:
    first = entry.args[0] if entry.args else None
    return first.entry if isinstance(first, Made) else None


def _name(entry: Entry) -> str:
    return getattr(entry.function, "__name__", "") if isinstance(entry, OpEntry) else ""
