"""One loss of a graph, and what reaches it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from ..facts import Place

__all__ = ["Feeder", "LossInput"]


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
            ``"Pick"`` for a likelihood by hand, ``"KlDiv"`` for a call of ``kl_div``,
            ``"SelfPenalty"`` for a size of a parameter's difference with itself,
            ``"Bounded"`` for an error of a bounded activation, and the name of its function for a
            loss whose targets are signs.
        feeders: what made its input, nearest first, at most three.
        shape: shape at which it compares.
        given: shape of the prediction before it was broadcast.
        target: shape of the target before it was broadcast, where known.
        labels: number of targets; 0 when not read.
        ignored: number of targets that equal ``ignore_index``.
        beyond: number of targets that the prediction cannot reach, or that are no sign.
        low: smallest target among those that the loss counts.
        high: largest such target.
        one_hot: whether the targets are two-dimensional and each row sums to one.
        blanks: number of targets that are the blank of a CTC loss.
        input_high: largest value of the input; only read for a negative log-likelihood.
        averaged: whether the loss is a mean over the targets.
        class_axis: the axis along which one entry of each row is picked, for ``"Pick"``.
        explicit: whether the program lined the pairs up itself, by an axis of its own for each
            side, or goes on to compute with them before it reduces them.
        partition: whether the log of the sum of the exponentials of the input is taken as well,
            as in a cross entropy written by hand.
        place: where backward was called.
    """

    loss: str
    feeders: tuple[Feeder, ...] = ()
    shape: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    target: tuple[int, ...] | None = None
    labels: int = 0
    ignored: int = 0
    beyond: int = 0
    low: float | None = None
    high: float | None = None
    one_hot: bool = False
    blanks: int = 0
    input_high: float | None = None
    averaged: bool = False
    class_axis: int | None = None
    explicit: bool = False
    partition: bool = False
    place: Place | None = None
