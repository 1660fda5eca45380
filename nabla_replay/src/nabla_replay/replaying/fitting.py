"""Brings the parts of a program into the names and the order of a recorded run.

A run that was captured without the program's help (``nabla run --capture``) has names that nobody
chose: models are numbered, averages are called by their class, optimizers stand in the order of
their steps. Parts that fit by their tensors are the same parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from torch.nn import Module, ModuleDict
from torch.optim import Optimizer

from ..capturing.opening import tables_of
from ..capturing.owners import OWNERS, owned_names
from ..capturing.parts import Parts, in_turn
from ..capturing.stateful import Value
from ..fingerprints.table import entries_of
from ..store.reader import RunReader
from ..store.tables import Tables, TensorInfo
from .program import Program

__all__ = ["fitted"]

_NUMBERED = re.compile(r"\d+_\w+")

Shapes = frozenset[tuple[str, str, tuple[int, ...], str]]
"""Table, name, shape and dtype of each tensor."""


def fitted(program: Program, reader: RunReader, rank: int = 0) -> Program:
    """Return the program with its parts as the run has them; what does not fit stays as it is."""
    tables = reader.tables(rank, 0)
    parts = replace(
        program.parts,
        model=_model(program.parts.model, tables),
        extra=_extra(program.parts.extra, tables),
    )
    recorded = reader.header.policy.get(OWNERS)
    names = (
        [set(map(str, one)) for one in recorded if isinstance(one, list)]
        if isinstance(recorded, list)
        else []
    )
    return replace(program, parts=_optimizers(parts, names))


def _model(model: Module, tables: Tables) -> Module:
    """Return the model, or a container that gives its parts the recorded names."""
    groups = _groups(tables, ("parameters", "buffers"))
    here = {info.name for infos in tables_of(entries_of(model)).values() for info in infos}
    there = {info.name for table in ("parameters", "buffers") for info in tables.get(table, ())}
    if here == there or not groups or not all(map(_NUMBERED.fullmatch, groups)):
        return model
    found = _matched(groups, dict(model.named_children()))
    return ModuleDict(found) if len(found) == len(groups) else model


def _extra(extra: Mapping[str, Value], tables: Tables) -> dict[str, Value]:
    """Return the extra parts; modules with other names than the recorded ones get those."""
    groups = _groups(tables, ("extra",))
    open_groups = {name: shapes for name, shapes in groups.items() if name not in extra}
    unknown = {
        name: value
        for name, value in extra.items()
        if isinstance(value, Module) and name not in groups
    }
    renamed = _matched(open_groups, unknown)
    taken = {id(value) for value in renamed.values()}
    return {
        **{name: value for name, value in extra.items() if id(value) not in taken},
        **renamed,
    }


def _optimizers(parts: Parts, recorded: Sequence[set[str]]) -> Parts:
    """Put several optimizers in the order in which they were recorded, by what they hold."""
    mine = [(set(names), one) for names, one in _owned(parts)]
    order: list[Optimizer] = []
    for wanted in recorded:
        index = next((i for i, (names, _) in enumerate(mine) if names == wanted), None)
        if index is None:
            return parts
        order.append(mine.pop(index)[1])
    if not order or mine:
        return parts
    schedulers = in_turn(parts.schedulers, order)
    return replace(parts, optimizers=tuple(order), schedulers=schedulers)


def _owned(parts: Parts) -> Iterable[tuple[Sequence[str], Optimizer]]:
    return zip(owned_names(parts), parts.optimizers, strict=True)


def _groups(tables: Tables, wanted: Sequence[str]) -> dict[str, Shapes]:
    """Return the tensors under each first part of a name, without it."""
    found: dict[str, set[tuple[str, str, tuple[int, ...], str]]] = {}
    for table in wanted:
        for info in tables.get(table, ()):
            group, _, rest = info.name.partition(".")
            found.setdefault(group, set()).add(
                _shape("" if table == "extra" else table, rest, info)
            )
    return {group: frozenset(shapes) for group, shapes in found.items()}


def _matched(groups: Mapping[str, Shapes], candidates: Mapping[str, Value]) -> dict[str, Module]:
    """Give each group the first candidate with the same tensors that is still free."""
    free = [value for value in candidates.values() if isinstance(value, Module)]
    found: dict[str, Module] = {}
    for name, shapes in groups.items():
        for value in free:
            if shapes in (frozenset(_shapes(value, "")), frozenset(_shapes(value, "extra"))):
                found[name] = value
                free = [one for one in free if one is not value]
                break
    return found


def _shapes(module: Module, component: str) -> Iterator[tuple[str, str, tuple[int, ...], str]]:
    for table, infos in tables_of(entries_of(module)).items():
        for info in infos:
            yield _shape("" if component == "extra" else table, info.name, info)


def _shape(table: str, name: str, info: TensorInfo) -> tuple[str, str, tuple[int, ...], str]:
    return table, name, info.shape, info.dtype
