"""What the re-execution of a step found, as plain facts without a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nabla_core.issue import Phase

from ..facts import Place, TensorFault

__all__ = ["FROM_OUTSIDE", "Birth", "Findings", "Source"]

Source = Literal["op", "constant", "parameter", "buffer", "input", "outside", "unseen"]
"""Who holds the first bad value: an op made it, a constant put it there on purpose, or it was there
before the step, in a parameter, a buffer, an argument of the model, or another tensor; or it came
from a computation that could not be seen, such as a custom function outside of modules."""

FROM_OUTSIDE: frozenset[Source] = frozenset({"input", "outside"})
"""The sources that are data."""


@dataclass(slots=True, kw_only=True, eq=False)
class Birth:
    """A tensor that was worse than everything that it was made from.

    Attributes:
        number: order of execution.
        source: see :data:`Source`.
        op: name of the op (``"log"``), or of the tensor when it was there before.
        phase: part of the step.
        fault: what is not finite in it.
        serial: number of the autograd node that the op belongs to.
        node: autograd node that ran, for a birth in backward.
        place: the user's line; for a birth in backward that of the forward op owning the node.
        module: path of the module that ran; ``None`` outside of modules.
        model: class name of the root module.
        shape: shape of the tensor.
        sample: position along the batch axis, when the tensor has one.
        in_batch: position of its first bad value in the batch that it was put into, such as a row
            that a data loader stacked; empty where it is the batch itself.
        operands: finite or not, the inputs' values at the first bad element.
        low: smallest input value.
        high: largest input value.
        inputs_finite: whether every input was finite.
        parents: numbers of the births from which its bad inputs descend.
        fed_by: overflows that were swallowed on the way to its inputs.
        overflow: the inputs were finite and the result is an infinity of a product, sum or power.
        masked: number of the forward birth whose value a selection had hidden; -1 for none.
        mask_like: made from a tensor of only zeros and ones; a buffer that never is plus infinity.
        of_masks: a reduction that was given nothing but masked values.
        in_hook: the user's own hook on a gradient made it, not the node that was running.
        selected_away: a selection such as ``where`` removed it.
        swallowed_by: op that turned it into a finite number without selecting.
        call_place: where the user's code called the module.
    """

    number: int
    source: Source
    op: str
    phase: Phase
    fault: TensorFault
    serial: int = -1
    node: str = ""
    place: Place | None = None
    module: str | None = None
    model: str = ""
    shape: tuple[int, ...] = ()
    sample: int | None = None
    in_batch: tuple[int, ...] = ()
    operands: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    inputs_finite: bool = True
    parents: frozenset[int] = frozenset()
    fed_by: frozenset[int] = frozenset()
    overflow: bool = False
    masked: int = -1
    mask_like: bool = False
    of_masks: bool = False
    in_hook: bool = False
    selected_away: bool = False
    swallowed_by: str = ""
    call_place: Place | None = None

    @property
    def index(self) -> tuple[int, ...]:
        """Position of the first bad value, in the batch where it is part of one."""
        return self.in_batch or self.fault.index

    @property
    def is_nan(self) -> bool:
        """Whether it holds a NaN, not only infinities."""
        return self.fault.nan > 0

    @property
    def is_mask(self) -> bool:
        """Whether it is an infinity meant to be there: a constant, a mask or its logarithm.

        A buffer that the program has just written is one only where it blocks values.
        """
        if self.is_nan:
            return False
        if self.source == "buffer":
            return self.place is None or self.mask_like
        if self.source in ("constant", "outside"):
            return True
        return self.mask_like and self.op == "log"


@dataclass(slots=True, kw_only=True, eq=False)
class Findings:
    """What came out of a re-execution.

    Attributes:
        births: in order of execution.
        loss: births from which the first loss that is not finite descends; ``None`` when all
            losses are finite.
        gradients: births from which bad gradients descend; ``None`` when all are finite.
        loss_seen: whether there was a loss to look at; a transform keeps its own to itself.
        problems: why something could not be executed again.
    """

    births: tuple[Birth, ...] = ()
    loss: frozenset[int] | None = None
    gradients: frozenset[int] | None = None
    loss_seen: bool = True
    problems: list[str] = field(default_factory=list)

    def of(self, numbers: frozenset[int] | None) -> list[Birth]:
        """Return the births with these numbers, in order."""
        return [birth for birth in self.births if numbers and birth.number in numbers]
