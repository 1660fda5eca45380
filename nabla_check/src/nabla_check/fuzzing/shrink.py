"""Structural shrinking: the simplest attributes and the smallest sizes that still fail.

Only the recipe is changed, never single values: a gradient depends on shapes, layouts and dtypes,
and a case is read by its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from .recipe import Case, is_fixed
from .sampling import InputSpace, Recipe, simplest_dtypes
from .values import is_generic

__all__ = ["Fails", "Shrunk", "shrink"]

Fails = Callable[[Case], bool]
"""Whether a case fails in the same way as the one that is shrunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The end of a shrink.

    Attributes:
        case: nothing in it can be made simpler alone.
        calls: how many cases were tried.
        complete: whether it ended by itself and not by ``max_calls``.
    """

    case: Case
    calls: int
    complete: bool


def shrink(case: Case, fails: Fails, recipe: Recipe | None = None, max_calls: int = 200) -> Shrunk:
    """Return the simplest case that still fails.

    Attributes go to their simplest value, all at once where possible. Every size is searched from
    below, by bisection and then by landmarks under the result, so that a fault that begins at some
    size, or at sizes that are no multiple of a block, is met exactly.

    Args:
        case: a failing case.
        fails: the predicate; called at most once per case.
        recipe: choices of attributes; by default only values that are simpler for anybody.
        max_calls: bound on the calls of ``fails``.

    Source: algorithms/check.md §2.6; the landmark descent after the bisection is new.
    """
    search = _Search(case=case, fails=fails, spaces=_spaces(case, recipe), budget=max_calls)
    search.everything_at_once()
    changed = True
    while changed and not search.spent:
        before = search.case
        search.simplify_attributes()
        search.minimise_sizes()
        changed = search.case != before
    return Shrunk(case=search.case, calls=search.calls, complete=not search.spent)


@dataclass(slots=True, kw_only=True)
class _Search:
    case: Case
    fails: Fails
    spaces: tuple[InputSpace, ...]
    budget: int
    calls: int = 0
    spent: bool = False
    known: dict[Case, bool] = field(default_factory=dict)

    def accept(self, simpler: Case) -> bool:
        """Move to ``simpler`` if it is another case that fails as well."""
        if simpler == self.case or not self.fails_at(simpler):
            return False
        self.case = simpler
        return True

    def fails_at(self, case: Case) -> bool:
        if case not in self.known:
            if self.calls >= self.budget:
                self.spent = True
                return False
            self.calls += 1
            self.known[case] = self.fails(case)
        return self.known[case]

    def everything_at_once(self) -> None:
        plain = self._plain()
        symbols = [axis for axis, size in plain.sizes if size > 1 and not is_fixed(axis)]
        if not self.accept(plain.with_sizes(dict.fromkeys(symbols, 1))):
            self.accept(plain)

    def simplify_attributes(self) -> None:
        """Try the simpler values of one attribute after the other."""
        for moves in (self._cotangent, self._layouts, self._values, self._dtypes, self._ranks):
            progress = True
            while progress and not self.spent:
                progress = any(self.accept(simpler) for simpler in moves())

    def minimise_sizes(self) -> None:
        """Make axes smaller: those of equal size together, then each alone."""
        for group in self._groups():
            size = self.case.size_of.get(group[0], 0)
            if size > 1 and all(self.case.size_of.get(axis) == size for axis in group):
                self._minimise(group, size)

    def _plain(self) -> Case:
        case = replace(self.case, cotangent="contiguous")
        entries = []
        for entry, space in zip(case.inputs, self.spaces, strict=True):
            axes = min((axes for axes in space.axes), key=len)
            entries.append(
                replace(
                    entry,
                    layout="contiguous",
                    values=space.values[0],
                    dtype=space.dtypes[0],
                    axes=axes,
                )
            )
        return case.with_inputs(entries)

    def _cotangent(self) -> Iterator[Case]:
        if self.case.cotangent != "contiguous":
            yield replace(self.case, cotangent="contiguous")

    def _layouts(self) -> Iterator[Case]:
        yield self._with_all(layout="contiguous")
        for index, entry in enumerate(self.case.inputs):
            for layout in ("contiguous", *self.spaces[index].layouts):
                if layout == entry.layout:
                    break
                yield self._with(index, layout=layout)

    def _values(self) -> Iterator[Case]:
        generic = [
            replace(entry, values=space.values[0])
            for entry, space in zip(self.case.inputs, self.spaces, strict=True)
        ]
        yield self.case.with_inputs(generic)
        for index, entry in enumerate(self.case.inputs):
            for values in self.spaces[index].values:
                if values == entry.values:
                    break
                yield self._with(index, values=values)

    def _dtypes(self) -> Iterator[Case]:
        """Inputs of one dtype change together: an operator rarely takes a mixture."""
        for dtype in dict.fromkeys(entry.dtype for entry in self.case.inputs):
            same = [i for i, entry in enumerate(self.case.inputs) if entry.dtype is dtype]
            for simpler in self.spaces[same[0]].dtypes:
                if simpler is dtype:
                    break
                if all(simpler in self.spaces[index].dtypes for index in same):
                    inputs = list(self.case.inputs)
                    for index in same:
                        inputs[index] = replace(inputs[index], dtype=simpler)
                    yield self.case.with_inputs(inputs)

    def _ranks(self) -> Iterator[Case]:
        lower = [self._lower_axes(index) for index in range(len(self.spaces))]
        for pick in range(max(map(len, lower), default=0)):
            if sum(len(choices) > 0 for choices in lower) > 1:
                yield self.case.with_inputs(
                    [
                        replace(entry, axes=choices[min(pick, len(choices) - 1)])
                        if choices
                        else entry
                        for entry, choices in zip(self.case.inputs, lower, strict=True)
                    ]
                )
        for index, choices in enumerate(lower):
            for axes in choices:
                yield self._with(index, axes=axes)

    def _lower_axes(self, index: int) -> list[tuple[str, ...]]:
        now = self.case.inputs[index].axes
        return [axes for axes in self.spaces[index].axes if len(axes) < len(now)]

    def _with(self, index: int, **changes: object) -> Case:
        inputs = list(self.case.inputs)
        inputs[index] = replace(inputs[index], **changes)  # type: ignore[arg-type]
        return self.case.with_inputs(inputs)

    def _with_all(self, **changes: object) -> Case:
        return self.case.with_inputs(
            [replace(entry, **changes) for entry in self.case.inputs]  # type: ignore[arg-type]
        )

    def _groups(self) -> list[tuple[str, ...]]:
        by_size: dict[int, list[str]] = {}
        for axis, size in self.case.sizes:
            by_size.setdefault(size, []).append(axis)
        linked = [tuple(axes) for axes in by_size.values() if len(axes) > 1]
        # a size that two inputs share by accident of the recipe may be one size to the operator
        return [*linked, *((axis,) for axis, _ in self.case.sizes)]

    def _minimise(self, group: tuple[str, ...], size: int) -> None:
        for least in (0, 1, 2):
            if least >= size or self._accept_size(group, least):
                return  # nothing smaller is left to try
        low, high = 2, size
        while high - low > 1 and not self.spent:
            middle = (low + high) // 2
            low, high = (low, middle) if self._accept_size(group, middle) else (middle, high)
        self._descend(group, high)

    def _descend(self, group: tuple[str, ...], size: int) -> None:
        """Leave a local minimum: sizes just below, then one past every smaller power of two."""
        found = True
        while found and not self.spent:
            below = [size - 1, size - 2, *_past_powers(size)]
            smaller = [n for n in dict.fromkeys(below) if 2 < n < size]
            found = False
            for candidate in smaller:
                if self._accept_size(group, candidate):
                    size, found = candidate, True
                    break

    def _accept_size(self, group: tuple[str, ...], size: int) -> bool:
        return self.accept(self.case.with_sizes(dict.fromkeys(group, size)))


def _past_powers(size: int) -> list[int]:
    """Return ``2**k + 1`` below ``size``, the smallest first."""
    return [power + 1 for power in (2, 4, 8, 16, 32, 64, 128, 256) if power + 1 < size]


def _spaces(case: Case, recipe: Recipe | None) -> tuple[InputSpace, ...]:
    if recipe is not None and len(recipe.inputs) == len(case.inputs):
        return recipe.inputs
    sizes: Mapping[str, int] = case.size_of
    return tuple(
        InputSpace(
            axes=(entry.axes,),
            sizes=tuple((axis, (sizes[axis],)) for axis in entry.axes if axis in sizes),
            dtypes=simplest_dtypes([entry.dtype]),
            layouts=("contiguous",),
            values=(entry.values,) if is_generic(entry.values) else ("normal", entry.values),
            requires_grad=entry.requires_grad,
        )
        for entry in case.inputs
    )
