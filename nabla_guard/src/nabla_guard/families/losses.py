"""What reaches the losses of a backward pass, as the graph shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch import Tensor
from torch.autograd.graph import Node
from torch.nn import functional

from ..facts import ParameterFacts, Place
from ..loop.watch import Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .class_picks import PICKS, picked_axis
from .ctc import ctc_input
from .graph import (
    FLAT,
    RESHAPES,
    SELECTS,
    leaf_of,
    name_of,
    nodes_from,
    saved_int,
    saved_sizes,
    saved_tensor,
    shape_of,
    skip,
)
from .outer_products import OuterProduct, outer_products
from .saved_hooks import SavedHooksWatch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["Feeder", "LossFacts", "LossInput", "LossWatch"]

_LOSSES = frozenset(
    {
        "BinaryCrossEntropy",
        "BinaryCrossEntropyWithLogits",
        "CtcLoss",
        "HuberLoss",
        "LogSigmoid",
        "LogSoftmax",
        "MseLoss",
        "NllLoss",
        "NllLoss2D",
        "SmoothL1Loss",
        "Sub",
    }
)
_LIKELIHOODS = PICKS | {"Log"}
_EXPAND = frozenset({"Expand"})
_WALKS = 6
_EVERY = 96  # a calm loop is looked at in full then


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeder:
    """An operator that feeds a loss, with nothing but rearrangements between.

    Attributes:
        op: name of the operator, e.g. ``"Softmax"``.
        axis: the axis it works along, counted from the front.
        shape: shape of what it computed.
        direct: whether its output is the loss's input as it is.
        low: smallest value that it gave, where known.
        high: largest value.
    """

    op: str
    axis: int | None = None
    shape: tuple[int, ...] = ()
    direct: bool = True
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput:
    """One loss (or difference) in the graph of a backward pass, and what reaches it.

    Attributes:
        loss: name of the operator, e.g. ``"NllLoss"``; ``"Sub"`` for a difference by hand,
            ``"Mul"`` for a product that is averaged whole,
            ``"Pick"`` for a likelihood by hand, ``"KlDiv"`` for a call of ``kl_div``.
        feeders: what made its input, nearest first, at most three.
        shape: shape at which it compares.
        given: shape of the prediction before it was broadcast.
        target: shape of the target before it was broadcast, where known.
        labels: number of targets; 0 when not read.
        ignored: number of targets that equal ``ignore_index``.
        low: smallest target.
        high: largest target.
        one_hot: whether the targets are two-dimensional and each row sums to one.
        blanks: number of targets that are the blank of a CTC loss.
        input_high: largest value of the input; only read for a negative log-likelihood.
        averaged: whether the loss is a mean over the targets.
        class_axis: the axis along which one entry of each row is picked, for ``"Pick"``.
        place: where backward was called.
    """

    loss: str
    feeders: tuple[Feeder, ...] = ()
    shape: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    target: tuple[int, ...] | None = None
    labels: int = 0
    ignored: int = 0
    low: float | None = None
    high: float | None = None
    one_hot: bool = False
    blanks: int = 0
    input_high: float | None = None
    averaged: bool = False
    class_axis: int | None = None
    place: Place | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class LossFacts:
    """Losses of the backward passes since the last step that were looked at.

    Attributes:
        seen: what reached each loss.
        flat: parameters to which every path passes an operator without derivative, with its name.
        walks: graphs looked at so far.
    """

    seen: list[LossInput] = field(default_factory=list)
    flat: list[tuple[ParameterFacts, str]] = field(default_factory=list)
    walks: int = 0


class LossWatch(Watch):
    """Walks the graph of the first backward passes and of every 96th step.

    Attributes:
        facts: what was found.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.facts = LossFacts()
        self._hooks = loop.watches.gather(SavedHooksWatch)

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return (
            frozenset({"backward_started", "step_ended"})
            if self.facts.walks >= _WALKS
            else frozenset()
        )

    def start(self, patches: Patches) -> None:
        """Follow the one loss that leaves no operator of its own in the graph."""
        patches.replace(functional, "kl_div", self._wrap_divergence)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Walk, if it is time to."""
        if self.facts.walks >= _WALKS and (self.loop.index + 1) % _EVERY:
            return
        self.facts.walks += 1
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        place = user_place()
        nodes = list(nodes_from(tops))
        for node in nodes:
            name = name_of(node)
            if name in _LOSSES or name in _LIKELIHOODS:
                self.facts.seen.extend(self._inputs(node, name, place))
        if not self._hooks.hooked:
            self.facts.seen.extend(_outer(found, place) for found in outer_products(tops))
        if any(name_of(node) in FLAT for node in nodes):
            self.facts.flat = list(self._behind_flat(tops, nodes))

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Start a new step."""
        if self.facts.seen:
            self.facts.seen = []

    def _behind_flat(
        self, tops: Sequence[Node], nodes: Sequence[Node]
    ) -> Iterator[tuple[ParameterFacts, str]]:
        flat = sorted({name_of(node) for node in nodes} & FLAT)
        live = set(nodes_from(tops, stop=lambda node: name_of(node) in FLAT))
        for node in nodes:
            leaf = leaf_of(node)
            if leaf is not None and node not in live:
                yield self.loop.gradients.record(leaf).facts, flat[0].lower()

    def _wrap_divergence(self, original: Replacement) -> Replacement:
        def kl_div(*args: object, **kwargs: object) -> object:
            self.guarded(lambda: self._divergence(args[0] if args else kwargs.get("input")))
            return original(*args, **kwargs)

        return kl_div

    def _divergence(self, given: object) -> None:
        if self.facts.walks >= _WALKS or not isinstance(given, Tensor) or given.grad_fn is None:
            return
        found = LossInput(
            loss="KlDiv",
            feeders=tuple(_feeders(given.grad_fn, read=not self._hooks.hooked)),
            shape=tuple(given.shape),
            input_high=float(given.detach().amax()) if given.numel() else None,
            place=user_place(),
        )
        self.facts.seen.append(found)

    def _inputs(self, node: Node, name: str, place: Place | None) -> Iterator[LossInput]:
        first = node.next_functions[0][0] if node.next_functions else None
        if name in _LIKELIHOODS:
            if first is not None and not self._hooks.hooked:
                yield from _picked(node, first, place)
            return
        if name == "Sub":
            found = _difference(node, place)
            if found is not None:
                yield found
            return
        if first is None:
            return
        found = LossInput(
            loss=name,
            feeders=tuple(_feeders(first, read=not self._hooks.hooked)),
            shape=shape_of(first) or (),
            given=_given(first),
            place=place,
        )
        yield found if self._hooks.hooked else _with_targets(found, node)


def _outer(found: OuterProduct, place: Place | None) -> LossInput:
    return LossInput(
        loss="Mul", shape=found.shape, given=found.given, target=found.other, place=place
    )


def _picked(node: Node, first: Node, place: Place | None) -> Iterator[LossInput]:
    """One entry of each row of log-probabilities, whether the logarithm comes before or after."""
    logarithm: tuple[Feeder, ...] = ()
    if name_of(node) == "Log":
        if name_of(first) not in PICKS or not first.next_functions:
            return
        logarithm = (Feeder(op="Log"),)
        node, below = first, first.next_functions[0][0]
        if below is None:
            return
        first = below
    shape = shape_of(first) or ()
    axis = picked_axis(node, shape)
    if axis is not None:
        feeders = (*logarithm, *_feeders(first, read=False))
        yield LossInput(
            loss="Pick", feeders=feeders, shape=shape, given=shape, class_axis=axis, place=place
        )


def _feeders(node: Node, *, read: bool) -> Iterator[Feeder]:
    current: Node | None = node
    for _ in range(3):
        below = skip(current, RESHAPES | SELECTS)
        if below is None or leaf_of(below) is not None:
            return
        op, shape = name_of(below), shape_of(below) or ()
        low, high = _range(below) if read and op in ("Softmax", "Sigmoid") else (None, None)
        axis = saved_int(below, "dim") if "oftmax" in op else None
        if axis is not None and axis < 0:
            axis += len(shape)
        yield Feeder(op=op, axis=axis, shape=shape, direct=below is current, low=low, high=high)
        current = below.next_functions[0][0] if below.next_functions else None


def _range(node: Node) -> tuple[float | None, float | None]:
    result = saved_tensor(node, "result")
    if result is None or not result.numel():
        return None, None
    low, high = result.detach().aminmax()
    return float(low), float(high)


def _given(node: Node) -> tuple[int, ...]:
    """Shape of what a loss was given, before the loss broadcast it."""
    shape = saved_sizes(node) if name_of(node) == "Expand" else None
    return shape if shape is not None else shape_of(node) or ()


def _with_targets(found: LossInput, node: Node) -> LossInput:
    """Add what the loss saved of its targets; reads tensors."""
    ctc = ctc_input(node) if found.loss == "CtcLoss" else None
    if ctc is not None:
        return replace(found, labels=ctc.labels, blanks=ctc.blanks, input_high=ctc.high)
    target = saved_tensor(node, "target")
    if target is None or not target.numel() or target.is_meta:
        return found
    target = target.detach()
    found = replace(
        found,
        labels=target.numel(),
        target=_unbroadcast(target),
        averaged=saved_int(node, "reduction") == 1,
    )
    if found.loss.startswith("NllLoss"):
        ignored = saved_int(node, "ignore_index")
        given = saved_tensor(node, "self")
        return replace(
            found,
            ignored=int((target == ignored).sum()) if ignored is not None else 0,
            input_high=None if given is None else float(given.detach().amax()),
        )
    low, high = target.aminmax()
    rows = target.sum(1) if target.dim() == 2 and target.shape[1] > 1 else None
    return replace(
        found,
        low=float(low),
        high=float(high),
        one_hot=rows is not None and bool(((rows - 1).abs() < 1e-6).all()),
    )


def _unbroadcast(target: Tensor) -> tuple[int, ...]:
    """Shape before an ``expand``: an expanded axis has stride zero."""
    return tuple(
        1 if stride == 0 else length
        for length, stride in zip(target.shape, target.stride(), strict=True)
    )


def _difference(node: Node, place: Place | None) -> LossInput | None:
    """A subtraction that broadcasts its only differentiable side."""
    sides = [child for child, _ in node.next_functions]
    known = [side for side in sides if side is not None]
    shape = shape_of(node)
    if len(sides) != 2 or len(known) != 1 or shape is None:
        return None
    given = _given(known[0])
    if not given or given == shape:
        return None
    maker = skip(known[0], _EXPAND)
    feeder = Feeder(op="" if maker is None else name_of(maker), shape=given)
    return LossInput(loss="Sub", feeders=(feeder,), shape=shape, given=given, place=place)
