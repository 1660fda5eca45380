"""Says what the tensors are that were there before the step: parameters, buffers, arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.nn import Module

from ..loop.exact import tensors_in
from ..taps.place import Line
from .arguments import arguments_of
from .findings import Source
from .ledger import Ledger, Origin
from .naming import model_name, paths_of, plain_path
from .parts import found_in
from .references import Outside, references_in
from .tape import CallEntry, Entry, OpEntry

__all__ = ["Declarations"]


class Declarations:
    """Tells a ledger; what is told first of a tensor counts.

    Args:
        ledger: is told.
        line_of: where the user's code last wrote to a tensor, if that may have made it bad.
    """

    def __init__(self, ledger: Ledger, line_of: Callable[[Tensor], Line | None]) -> None:
        self._ledger = ledger
        self._line_of = line_of

    def models(self, roots: Iterable[Module]) -> None:
        """Declare the parameters and buffers of models."""
        for root in roots:
            model = model_name(root)
            for path, module in paths_of(root):
                above = f"{plain_path(path)}." if path else ""
                for name, parameter in module._parameters.items():
                    self._declare(parameter, Origin("parameter", above + name, model))
                for name, buffer in module._buffers.items():
                    self._declare(buffer, Origin("buffer", above + name, model))

    def parameters(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Declare what the optimizer changes, which need not be part of a model."""
        for name, tensor in named:
            self._declare(tensor, Origin("parameter", name))

    def arguments(self, entries: Iterable[Entry]) -> None:
        """Declare what the modules were given, also inside of objects."""
        for entry in entries:
            if isinstance(entry, CallEntry):
                model = model_name(entry.module)
                source: Source = "input" if entry.has_parameters else "outside"
                for argument, value in arguments_of(entry):
                    for name, outside in found_in(value, Outside, argument):
                        self._declare(outside.tensor, Origin(source, name, model))
                    for name, tensor in tensors_in(value, argument):
                        self._declare(tensor, Origin(source, name, model))

    def written(self, entries: Iterable[Entry]) -> None:
        """Declare where the user's code wrote to what is used outside of modules."""
        for entry in entries:
            if isinstance(entry, OpEntry):
                for outside in references_in(Outside, entry.args, entry.kwargs):
                    if self._line_of(outside.tensor) is not None:
                        self._declare(outside.tensor, Origin("outside", "a tensor"))

    def _declare(self, tensor: Tensor | None, origin: Origin) -> None:
        if tensor is not None:
            line = self._line_of(tensor)
            self._ledger.declare(tensor, origin if line is None else origin._replace(line=line))
