"""One call of a torch function in which a parameter met something of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from .layout import Layout, StructureDiffers, find_layout

__all__ = ["Call", "Function", "Origin", "Out", "Path", "replaced", "tensors_in"]

Path = tuple[int | str, ...]
"""Where an argument stands: position or keyword, then indices into lists."""

Function = Callable[..., object]


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A parameter, or a value that was computed from parameters alone.

    Attributes:
        tensor: the value, with its graph.
        roots: identities of the parameters that it was made from.
        is_parameter: whether it is one of them.
        maker: the call that computed it, when there is a rule for its function.
    """

    tensor: Tensor
    roots: frozenset[int]
    is_parameter: bool
    maker: Call | None = None


@dataclass(slots=True, eq=False)
class Out:
    """A differentiable output of a call: shape, layout and, after backward, gradient."""

    shape: tuple[int, ...]
    layout: Layout | None = None
    grad: Tensor | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """A call and what is needed to say which sample gave which part of its gradient.

    Attributes:
        func: the function, or the module for a rule of a third party.
        name: for reports.
        args: arguments, detached.
        kwargs: keyword arguments, detached.
        tracked: where parameters stand, and what they are.
        aliases: stand-ins for the tracked arguments in the recorded graph, if it must be asked.
        tainted: where values of the batch stand.
        shapes: of all tensor arguments.
        outs: differentiable outputs.
        edges: where the outputs stand in the recorded graph, if it must be asked.
        layouts: where the samples lie in each argument; ``None`` for an argument without samples.
        samples: batch size.
        makers: for tracked values that a known function computed: the call of it.
        recorded: whether only the recorded graph can tell (random numbers, writes in place).
        compared: sizes of the larger call that it was compared with last; layouts are for them.
    """

    func: Function
    name: str
    args: tuple[object, ...]
    kwargs: dict[str, object]
    tracked: dict[Path, Origin]
    tainted: frozenset[Path]
    shapes: dict[Path, tuple[int, ...]]
    samples: int
    aliases: dict[Path, Tensor] = field(default_factory=dict)
    outs: list[Out] = field(default_factory=list)
    edges: list[GradientEdge] = field(default_factory=list)
    layouts: dict[Path, Layout | None] = field(default_factory=dict)
    makers: dict[Path, Call] = field(default_factory=dict)
    recorded: bool = False
    compared: tuple[int, dict[Path, tuple[int, ...]], list[tuple[int, ...]]] | None = None

    def __post_init__(self) -> None:
        self.makers = {p: o.maker for p, o in self.tracked.items() if o.maker is not None}

    def arg(self, position: int, name: str) -> object:
        """Return an argument however it was passed; ``None`` when it was left out."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name)

    def origin(self, position: int, name: str) -> Origin | None:
        """Return what is tracked at an argument."""
        return self.tracked.get((position,)) or self.tracked.get((name,))

    def layout(self, position: int, name: str) -> Layout | None:
        """Return where the samples lie in an argument."""
        found = self.layouts.get((position,))
        return found if found is not None else self.layouts.get((name,))

    def compare(self, few: Call) -> None:
        """Find the layouts by comparing with the same call of a smaller batch.

        Raises:
            StructureDiffers: it is not the same call, or not of a scaled shape.
        """
        if few.func is not self.func and few.name != self.name:
            raise StructureDiffers(f"{few.name} was called where {self.name} is called now")
        if few.shapes.keys() != self.shapes.keys() or len(few.outs) != len(self.outs):
            raise StructureDiffers(f"{self.name} was called with other arguments")
        sizes = self.samples, self.shapes, [out.shape for out in self.outs]
        if not self.makers and few.compared == sizes:
            self._take_layouts(few)
            return
        few.compared = None
        for path, shape in self.shapes.items():
            found = find_layout(few.shapes[path], few.samples, shape, self.samples)
            known = few.layouts.get(path)
            if found is not None and known is not None and known.minor:
                found = known  # settled in an earlier comparison
            self.layouts[path] = few.layouts[path] = found
        for mine, other in zip(self.outs, few.outs, strict=True):
            found = find_layout(other.shape, few.samples, mine.shape, self.samples)
            if found is not None and other.layout is not None and other.layout.minor:
                found = other.layout
            mine.layout = other.layout = found
        for path, maker in self.makers.items():
            if self.layouts[path] is not None and path in few.makers:
                maker.compare(few.makers[path])  # made from parameters, with a slice per sample
        few.compared = sizes

    def _take_layouts(self, few: Call) -> None:
        self.layouts = dict(few.layouts)
        for mine, other in zip(self.outs, few.outs, strict=True):
            mine.layout = other.layout

    def forget(self) -> None:
        """Let go of every tensor and of the function; what is left can be compared.

        The makers stay: other calls may get what they made.
        """
        self.func = _forgotten
        self.args, self.kwargs = (), {}
        self.tracked, self.aliases = {}, {}
        self.edges = []
        for out in self.outs:
            out.grad = None


def _forgotten(*args: object) -> None:
    """Stands for the function of a call that is over."""


def tensors_in(args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[tuple[Path, Tensor]]:
    """Return every tensor among the arguments, also inside lists and tuples, with its path."""
    found: list[tuple[Path, Tensor]] = []
    for position, value in enumerate(args):
        if isinstance(value, Tensor):
            found.append(((position,), value))
        elif isinstance(value, (list, tuple)):
            found.extend(_within((position,), value))
    for name, value in kwargs.items():
        if isinstance(value, Tensor):
            found.append(((name,), value))
        elif isinstance(value, (list, tuple)):
            found.extend(_within((name,), value))
    return found


def _within(path: Path, parts: Sequence[object]) -> Iterator[tuple[Path, Tensor]]:
    for index, part in enumerate(parts):
        if isinstance(part, Tensor):
            yield (*path, index), part
        elif isinstance(part, (list, tuple)):
            yield from _within((*path, index), part)


def replaced(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    change: Callable[[Path, Tensor], Tensor],
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments with every tensor changed."""
    new_args = tuple(
        change((position,), value)
        if isinstance(value, Tensor)
        else _changed((position,), value, change)
        if isinstance(value, (list, tuple))
        else value
        for position, value in enumerate(args)
    )
    return new_args, {name: _changed((name,), value, change) for name, value in kwargs.items()}


def _changed(path: Path, value: object, change: Callable[[Path, Tensor], Tensor]) -> object:
    if isinstance(value, Tensor):
        return change(path, value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        parts = [_changed((*path, index), part, change) for index, part in enumerate(value)]
        if isinstance(value, list):
            return parts
        # a named tuple takes its fields one by one
        make: Callable[..., object] = type(value)
        return make(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
