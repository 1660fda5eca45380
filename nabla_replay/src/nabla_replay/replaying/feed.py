"""Hands the program to replay the batches that the recorded one took."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import cast

from ..capturing.between import ProgramChanged
from ..capturing.generators import restore_generators
from ..capturing.loaders import batch_size_of, put_loader_state
from ..errors import RecordError
from .ahead import Waiting, waiting_before
from .habits import Habits
from .history import Segment, epoch_state
from .recorded_state import recorded_state

__all__ = ["BatchFeed", "DataEnded", "length_of"]

_PLAIN = Habits()
_MOST_EPOCHS = 10_000
_MOST_BATCHES = 1 << 20


class DataEnded(RecordError):
    """The loader gives fewer batches than the recorded run took from it."""


class BatchFeed:
    """Follows a loader from a checkpoint on.

    At the start of each epoch the generators are put where the recorded run had them: what a
    program did between two epochs (an evaluation, a schedule) is not executed again.

    Args:
        loader: the training data.
        place: epoch, position and start of the epoch, as a checkpoint stores them; ``None`` before
            the first epoch or where nothing was recorded.
        segment: knows how later epochs began.
        records: steps that were taken before.
        between: told an epoch and how it began; puts back what the program had changed before it.
        habits: which of the batches that were taken a step uses.
    """

    def __init__(
        self,
        loader: Iterable[object],
        place: Mapping[str, object] | None,
        segment: Segment,
        records: int,
        between: Callable[[int, Mapping[str, object]], object] = lambda epoch, state: None,
        habits: Habits = _PLAIN,
    ) -> None:
        self._loader = loader
        self._segment = segment
        self._records = records
        self._between = between
        self._iterator: Iterator[object] | None = None
        self.epoch, self.position = -1, 0
        self._batch_size: int | None = None
        self._waiting = None if habits.uses == "taken" else Waiting(habits)
        self._kept = waiting_before(segment, records, habits, length_of(loader))
        if place is not None:
            self._go_to(place)
        elif not segment.epochs and records:
            self._skip_unrecorded(records)

    def take(
        self, target: tuple[int, int] | None, skipped: Container[int] = ()
    ) -> Iterator[object]:
        """Yield the batches of the next step.

        Args:
            target: epoch and position after the step; ``None`` for one batch.
            skipped: positions of batches that the recorded program took and did not use.

        Raises:
            DataEnded: the loader ends before that.
            RecordError: no program takes so much for one step.
        """
        if target is None:
            yield self._next()
            return
        self._check_target(*target)
        if self._waiting is not None:
            yield from self._ahead(self._waiting, target)
            return
        epoch, position = target
        while self.epoch < epoch:
            yield from self._rest()
            self._begin(self.epoch + 1)
        while self.position < position:
            batch = self._next(within=True)
            if self.position not in skipped:
                yield batch

    def step_taken(self) -> None:
        """Count a step: epochs are found by the steps before them."""
        self._records += 1

    # ------------------------------------------------------------------ private
    def _check_target(self, epoch: int, position: int) -> None:
        """A damaged or forged record must not keep a replay busy for ever."""
        reached = self.position if epoch == self.epoch else 0
        if epoch - self.epoch > _MOST_EPOCHS or position - reached > _MOST_BATCHES:
            raise RecordError(
                f"a record says that its step ended {position} batches into epoch {epoch}, and the "
                f"one before it {self.position} batches into epoch {self.epoch}: at most "
                f"{_MOST_EPOCHS} epochs and {_MOST_BATCHES} batches are taken for one step"
            )

    def _ahead(self, waiting: Waiting, target: tuple[int, int]) -> list[object]:
        """Take what the recorded step took, and return what it used."""
        epoch, position = target
        while self.epoch < epoch:
            while waiting.goes_on and self._iterator is not None:
                try:
                    waiting.arrive(next(self._iterator))
                except StopIteration:
                    break
            waiting.epoch_ended()
            self._begin(self.epoch + 1)
        while self.position < position:
            waiting.arrive(self._next(within=True))
        return waiting.of_step()

    def _go_to(self, place: Mapping[str, object]) -> None:
        with recorded_state("the place in the data of a checkpoint"):
            start = cast("Mapping[str, object]", place["start"])
            size = start.get("batch_size")
            self._batch_size = size if isinstance(size, int) else None
            put_loader_state(self._loader, cast("Mapping[str, object]", start["loader"]))
            restore_generators(cast("Mapping[str, object]", start["generators"]))
            epoch = int(cast("int", place["epoch"]))
            position = int(cast("int", place["position"]))
        self._iterator = iter(self._loader)
        self.epoch = epoch
        if self._kept > position:
            raise RecordError(
                f"batches of the epoch before epoch {self.epoch} waited for their steps when the "
                "checkpoint was taken"
            )
        for _ in range(position):
            batch = self._next(within=True)
            if self._waiting is not None and self.position > position - self._kept:
                self._waiting.arrive(batch)

    def _skip_unrecorded(self, records: int) -> None:
        """Without recorded positions a step is taken to be one batch, from the first one on."""
        for _ in range(records):
            self._next()

    def _rest(self) -> Iterator[object]:
        """Yield what was used of this epoch after its last step: its gradients go on into the next.

        A batch that was taken and not used (a loop that is left) was no call of the step.
        """
        start = self._segment.epoch_at(0, self.epoch + 1)
        if start is None or self._iterator is None:
            return
        used = epoch_state(start).get("before")
        while isinstance(used, int) and self.position < used:
            yield self._next(within=True)

    def _begin(self, epoch: int) -> None:
        start = self._segment.epoch_at(0, epoch)
        if start is not None:
            state = epoch_state(start)
            self._check(epoch, state.get("batch_size"))
            with recorded_state(f"the record of epoch {epoch}"):
                put_loader_state(self._loader, cast("Mapping[str, object]", state["loader"]))
            self._between(epoch, state)
            restore_generators(cast("Mapping[str, object]", state["generators"]))
        self._iterator = iter(self._loader)
        self.epoch, self.position = epoch, 0

    def _check(self, epoch: int, batch_size: object) -> None:
        """Say so if the recorded program had made a loader of its own for this epoch."""
        here = batch_size_of(self._loader)
        before = self._batch_size
        self._batch_size = batch_size if isinstance(batch_size, int) else None
        if None not in (before, self._batch_size) and before != self._batch_size != here:
            raise ProgramChanged(
                f"for epoch {epoch} the recorded program made a loader with batches of "
                f"{self._batch_size} instead of {before}, and the replayed one has {here}"
            )

    def _next(self, *, within: bool = False) -> object:
        if self._iterator is None:
            self._begin(self.epoch + 1)
        iterator = cast("Iterator[object]", self._iterator)
        try:
            batch = next(iterator)
        except StopIteration:
            if within or not self.position:
                raise DataEnded(
                    f"the loader ended after {self.position} batches of epoch {self.epoch}; the "
                    "recorded run took more"
                ) from None
            self._begin(self.epoch + 1)
            return self._next(within=True)
        self.position += 1
        return batch


def length_of(loader: object) -> int | None:
    """Return how many batches a loader has, where it says so."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None
