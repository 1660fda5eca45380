"""The arguments of a kept call by name, also for the rows that a batch was put together from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from .findings import Birth
from .ledger import Ledger
from .naming import model_name
from .parts import found_in
from .references import Made
from .tape import CallEntry

__all__ = ["arguments_of", "name_rows"]


def arguments_of(entry: CallEntry) -> Iterator[tuple[str, object]]:
    """Yield name and value of each argument, frozen."""
    yield from ((f"argument {index}", value) for index, value in enumerate(entry.args))
    yield from entry.kwargs.items()


def name_rows(
    entry: CallEntry, made: Mapping[int, Sequence[Tensor]], ledger: Ledger, births: Sequence[Birth]
) -> None:
    """Call bad rows by the argument of the model that they were put into.

    Args:
        entry: the call of the model, about to be executed again.
        made: what was executed again before it.
        ledger: knows from which births those tensors descend.
        births: all of them, by number.
    """
    if not births or not entry.has_parameters:
        return
    model = model_name(entry.module)
    for argument, value in arguments_of(entry):
        for name, reference in found_in(value, Made, argument):
            for tensor in made.get(reference.entry, ())[reference.index : reference.index + 1]:
                for birth in (births[number] for number in ledger.births(tensor) or ()):
                    part = birth.in_batch or birth.shape == tuple(tensor.shape)
                    if birth.source == "outside" and part and not birth.model:
                        birth.op, birth.model = name, model
