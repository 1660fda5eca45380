"""The two readings of a forward pass: a few samples to learn the structure, then all of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Module

from .bank import Bank
from .call import Call, Function
from .contributions import contributions, has_rule
from .layout import StructureDiffers

__all__ = ["SEEDED", "Accumulator", "Recorder", "note_problem", "settle_order"]

SEEDED = 1
"""The sample of a small run that has a gradient."""


class Recorder:
    """Keeps the calls of a small run with their gradients."""

    def __init__(self) -> None:
        self.problems: dict[int, str] = {}

    def knows(self, name: str, func: Function) -> bool:
        """See :class:`.function_watch.Receiver`."""
        return has_rule(func) or isinstance(func, Module)

    def called(self, call: Call) -> bool:
        """See :class:`.function_watch.Receiver`."""
        return True

    def arrived(self, call: Call) -> None:
        """See :class:`.function_watch.Receiver`."""

    def failed(self, call: Call, error: Exception) -> None:
        """See :class:`.function_watch.Receiver`."""
        note_problem(self.problems, call, error)


class Accumulator(Recorder):
    """Turns every call of the whole batch into contributions as soon as its gradient arrives.

    Args:
        guide: the same calls with a few samples.

    Attributes:
        bank: receives contributions; none are made before it is set.
        structure: why the two runs cannot be compared, if so.
        serial: calls so far.
        rules: name of a parameter → how its rows were found.
        lasts: whether the gradients of the same calls will come again.
    """

    def __init__(self, guide: Sequence[Call]) -> None:
        super().__init__()
        self.bank: Bank | None = None
        self.structure: str = ""
        self.serial = 0
        self.rules: dict[str, str] = {}
        self.lasts = False
        self._guide = guide

    def called(self, call: Call) -> bool:
        """Compare the call with its like in the small run."""
        serial, self.serial = self.serial, self.serial + 1
        if self.structure:
            return False
        try:
            if serial >= len(self._guide):
                raise StructureDiffers(f"{call.name} was not called with fewer samples")
            call.compare(self._guide[serial])
            settle_order(self._guide[serial], call)
        except StructureDiffers as error:
            self.structure = str(error)
            return False
        return all(out.layout is not None for out in call.outs) or bool(call.outs[1:])

    def arrived(self, call: Call) -> None:
        """Add what the call contributes."""
        if self.bank is None or self.structure:
            return
        how = call.name if has_rule(call.func) or isinstance(call.func, Module) else "rerun"
        for found in contributions(call, self.bank.options.budget):
            self.bank.add(found)
            for name in self.bank.names_of(found.origin.roots):
                self.rules[name] = how if how == call.name else f"{call.name}, run again"
        if not self.lasts:
            call.forget()
            return
        for out in call.outs:
            out.grad = None


def settle_order(few: Call, many: Call) -> None:
    """Decide whether samples vary slowest or fastest along a flattened axis.

    In the small run one sample alone had a gradient: the entries of the others must be zero.
    """
    for out in few.outs:
        if out.layout is None or out.layout.rows == 1 or out.grad is None:
            continue
        spread = out.layout.spread(out.grad, few.samples)
        if bool(spread[:SEEDED].any()) or bool(spread[SEEDED + 1 :].any()):
            _reorder(few)
            _reorder(many)
        return


def _reorder(call: Call) -> None:
    for out in call.outs:
        if out.layout is not None and out.layout.rows > 1:
            out.layout = out.layout.fastest()
    for path, layout in call.layouts.items():
        if layout is not None and layout.rows > 1:
            call.layouts[path] = layout.fastest()


def note_problem(problems: dict[int, str], call: Call, error: Exception) -> None:
    """Remember for the parameters of a call why their rows are not known."""
    for origin in call.tracked.values():
        for root in origin.roots:
            problems.setdefault(root, f"{call.name}: {type(error).__name__}: {error}")
