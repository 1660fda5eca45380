"""Nested arguments and outputs as a flat list of named leaves, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

__all__ = ["Tree", "flatten", "leaves_of"]

_LEAVES = (torch.Tensor, int, float, complex, str, bytes, type(None))

Builder = Callable[[Sequence[object]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A flattened nest of tuples, lists, dicts, named tuples and dataclasses.

    Attributes:
        leaves: everything that is not a container, in order.
        names: path of each leaf, e.g. ``"x"``, ``"args[1].weight"``.
        kinds: type of every container, depth first; two trees with equal ``kinds`` and ``names``
            have the same structure.
        build: rebuilds the nest from as many leaves.
    """

    leaves: tuple[object, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    build: Builder


@dataclass(slots=True)
class _Walk:
    leaves: list[object]
    names: list[str]
    kinds: list[str]
    atoms: tuple[type, ...]

    def visit(self, value: object, name: str) -> Builder:
        children = None if isinstance(value, self.atoms) else _children(value)
        if children is None:
            self.leaves.append(value)
            self.names.append(name)
            return _take_leaf
        self.kinds.append(type(value).__name__)
        parts: list[tuple[Builder, int, int]] = []
        for label, child in children:
            start = len(self.leaves)
            path = f"{name}{label}" if name else label.strip(".[]'")
            builder: Builder = _take_leaf
            if isinstance(child, _LEAVES):  # the usual case, without a call
                self.leaves.append(child)
                self.names.append(path)
            else:
                builder = self.visit(child, path)
            parts.append((builder, start, len(self.leaves)))
        base = parts[0][1] if parts else 0
        restore = _restorer(value, [label for label, _ in children])
        if all(make is _take_leaf for make, _, _ in parts):
            return restore

        def build(leaves: Sequence[object]) -> object:
            return restore(
                [make(leaves[start - base : stop - base]) for make, start, stop in parts]
            )

        return build


def flatten(value: object, name: str = "", *, atoms: tuple[type, ...] = ()) -> Tree:
    """Return the leaves of ``value``; ``name`` starts their paths, ``atoms`` are never opened."""
    walk = _Walk([], [], [], atoms)
    build = walk.visit(value, name)
    return Tree(
        leaves=tuple(walk.leaves),
        names=tuple(walk.names),
        kinds=tuple(walk.kinds),
        build=build,
    )


def leaves_of(value: object) -> list[object]:
    """Return the leaves of ``value`` in the order of :func:`flatten`, without what rebuilds it."""
    if isinstance(value, _LEAVES):
        return [value]
    children = _children(value)
    if children is None:
        return [value]
    return [leaf for _, child in children for leaf in leaves_of(child)]


def _take_leaf(leaves: Sequence[object]) -> object:
    return leaves[0]


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _children(value: object) -> list[tuple[str, object]] | None:
    if isinstance(value, _LEAVES):
        return None
    if isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if _is_named_tuple(value):
        fields: Sequence[str] = value._fields  # type: ignore[attr-defined]
        return [(f".{field}", getattr(value, field)) for field in fields]
    if type(value) in (tuple, list) or hasattr(type(value), "n_sequence_fields"):
        items: Sequence[object] = value  # type: ignore[assignment]
        return [(f"[{index}]", child) for index, child in enumerate(items)]
    if _is_record(value) and all(field.init for field in dataclasses.fields(value)):  # type: ignore[arg-type]
        names = [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]
        return [(f".{field}", getattr(value, field)) for field in names]
    return None


def _restorer(value: object, labels: Sequence[str]) -> Builder:
    """Return what makes a container like ``value`` from its children."""
    kind = type(value)
    if kind in (tuple, list):
        return kind
    if isinstance(value, Mapping):
        keys = list(value)
        return lambda built: dict(zip(keys, built, strict=True))
    if _is_named_tuple(value):
        return lambda built: kind(*built)
    if _is_record(value):
        fields = [label[1:] for label in labels]
        return lambda built: dataclasses.replace(
            value,  # type: ignore[type-var]
            **dict(zip(fields, built, strict=True)),
        )
    return tuple
