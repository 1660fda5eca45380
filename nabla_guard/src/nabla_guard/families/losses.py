"""What reaches the losses of a backward pass, as the graph shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor
from torch.autograd.graph import Node
from torch.nn import functional

from ..facts import ParameterFacts, Place
from ..loop.watch import Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .bounded_outputs import ERRORS, bounded_output
from .class_picks import PICKS, picked_axis
from .dead_losses import dead_losses, self_penalty
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
from .loss_context import LossContext
from .loss_input import Feeder, LossInput
from .loss_targets import with_targets
from .outer_products import OuterProduct, outer_products
from .saved_hooks import SavedHooksWatch
from .signed_targets import SignedTargets
from .zero_products import ZERO_PRODUCT, zero_products

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
        "Logsumexp",
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
_TWICE = 2
_EVERY = 96  # a calm loop is looked at in full then


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
        self._signs = SignedTargets(self)

    @property
    def is_walking(self) -> bool:
        """Whether losses are still looked at in every step."""
        return self.facts.walks < _WALKS

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return (
            frozenset({"backward_started", "step_ended"})
            if self.facts.walks >= _WALKS
            else frozenset()
        )

    def start(self, patches: Patches) -> None:
        """Follow the losses that leave no operator of their own in the graph."""
        patches.replace(functional, "kl_div", self._wrap_divergence)
        self._signs.start(patches)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Walk, if it is time to."""
        if self.facts.walks >= _WALKS and (self.loop.index + 1) % _EVERY:
            return
        self.facts.walks += 1
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        place = user_place()
        nodes = list(nodes_from(tops))
        context = LossContext(nodes)
        for node in nodes:
            name = name_of(node)
            if name in _LOSSES or name in _LIKELIHOODS:
                self.facts.seen.extend(self._inputs(node, context, place))
            if name in ERRORS and not self._hooks.hooked:
                bounded = bounded_output(node, place)
                self.facts.seen.extend(() if bounded is None else (bounded,))
        if not self._hooks.hooked:
            self.facts.seen.extend(_outer(found, place) for found in outer_products(tops))
        stuck = dict(dead_losses(nodes))
        if self._has_silent():
            stuck |= dict.fromkeys(zero_products(nodes), ZERO_PRODUCT)
        if stuck or any(name_of(node) in FLAT for node in nodes):
            self.facts.flat = list(self._behind_flat(tops, nodes, stuck))

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Start a new step."""
        if self.facts.seen:
            self.facts.seen = []

    def _has_silent(self) -> bool:
        """Whether a held parameter had gradients twice, and both times they were exactly zero."""
        return not self._hooks.hooked and any(
            found.facts.writes >= _TWICE and not found.facts.nonzero_writes
            for found in self.loop.gradients
            if found.facts.optimizers
        )

    def _behind_flat(
        self, tops: Sequence[Node], nodes: Sequence[Node], stuck: dict[Node, str]
    ) -> Iterator[tuple[ParameterFacts, str]]:
        flat = sorted({name_of(node) for node in nodes} & FLAT)
        named = flat[0].lower() if flat else next(iter(stuck.values()))
        live = set(nodes_from(tops, stop=lambda node: node in stuck or name_of(node) in FLAT))
        for node in nodes:
            leaf = leaf_of(node)
            if leaf is not None and node not in live:
                yield self.loop.gradients.record(leaf).facts, named

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

    def _inputs(self, node: Node, context: LossContext, place: Place | None) -> Iterator[LossInput]:
        name = name_of(node)
        first = node.next_functions[0][0] if node.next_functions else None
        if name in _LIKELIHOODS:
            if first is not None and not self._hooks.hooked:
                yield from _picked(node, first, place)
            return
        if name == "Sub":
            if self_penalty(node, context.above(node)):
                yield LossInput(loss="SelfPenalty", shape=shape_of(node) or (), place=place)
                return
            found = _difference(node, place)
            if found is not None and context.is_error(node):
                yield found
            return
        if first is None or (name == "Logsumexp" and not _normalises(node, first)):
            return
        found = LossInput(
            loss=name,
            feeders=tuple(_feeders(first, read=not self._hooks.hooked)),
            shape=shape_of(first) or (),
            given=_given(first),
            place=place,
        )
        yield found if self._hooks.hooked else with_targets(found, node, context)


def _normalises(node: Node, first: Node) -> bool:
    """Whether a log of a sum of exponentials runs along the last axis, as a softmax before it."""
    shape = shape_of(first) or ()
    axes: tuple[int, ...] = getattr(node, "_saved_dim", ())
    last = {len(shape) - 1, -1, (1 << 64) - 1}
    inner = saved_int(first, "dim") if name_of(first) == "Softmax" else None
    return inner in last and len(axes) == 1 and axes[0] in last


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
