"""What is known of a data loader and of each pass over it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..facts import OptimizerFacts, Place

__all__ = ["EpochFacts", "LoaderFacts"]


@dataclass(slots=True, kw_only=True, eq=False)
class EpochFacts:
    """One iterator over a loader.

    Attributes:
        order: hash of the indices of each batch, in order; at most the first 4,096.
        given: batches handed to the program.
        sorted: whether every index so far is above the one before it.
        epoch: the sampler's ``epoch`` when it began, as ``set_epoch`` sets it.
        step: step of the loop that was closed last when it began.
        others: batches that all other iterators had given when it began.
        evaluated: whether its batches went into a model without gradients.
        trained: optimizers that stepped between its beginning and that of the next epoch of its
            loader; ``None`` while that is not known.
    """

    order: list[int] = field(default_factory=list)
    given: int = 0
    sorted: bool = True
    epoch: int | None = None
    step: int = -1
    others: int = 0
    evaluated: bool = False
    trained: tuple[OptimizerFacts, ...] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class LoaderFacts:
    """One data loader, or several alike over one dataset, each made when the last was gone.

    Attributes:
        sampler: class name of its sampler.
        has_set_epoch: whether the sampler has ``set_epoch``.
        shuffles: whether it is meant to give another order in each epoch.
        may_shuffle: whether it does not say so, and its sampler has ``set_epoch``.
        copied_batches: rounds of an iterable dataset in which all workers delivered the same.
        batches: its length, where it has one.
        samples: length of its sampler, where it has one.
        workers: number of worker processes.
        copied_generators: attributes of the dataset that hold a random generator, which every
            worker gets a copy of, and nothing reseeds in the workers.
        place: where the last iterator was made.
        iterators: iterators made so far.
        epochs: the latest of them, oldest first.
    """

    sampler: str = ""
    has_set_epoch: bool = False
    shuffles: bool = False
    may_shuffle: bool = False
    copied_batches: int = 0
    batches: int | None = None
    samples: int | None = None
    workers: int = 0
    copied_generators: tuple[str, ...] = ()
    place: Place | None = None
    iterators: int = 0
    epochs: list[EpochFacts] = field(default_factory=list)
