"""What is known to stand in the way of exact steps, in words, each reason once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .history import Segment

__all__ = [
    "AT_ONCE",
    "AT_RESUME",
    "MANY_DRAWS",
    "STALE_EXTRA",
    "TAKEN_AHEAD",
    "Reasons",
    "epoch_reason",
    "keeps_workers",
    "own_state_reason",
]

_MANY = 3

AT_ONCE = (
    "it is the first step after a checkpoint, so that beside code and data, state of the program's "
    "own that no checkpoint holds (a generator, a counter, an environment) may be what differs: "
    "give such state as extra"
)

AT_RESUME = (
    "the program gives the first steps that were recorded before the run was gone on with, and not "
    "those behind that: what it holds beside its model, optimizer and data (a number that it sets, "
    "a place of its own) was not the same when the run was gone on with; give such state as extra"
)

STALE_EXTRA = (
    "the recorded program changed its extra state (an average of the weights) between two epochs "
    "and outside of step(), which a replay does not: from there to the next checkpoint it is not "
    "compared"
)

TAKEN_AHEAD = (
    "the recorded loop took more batches from its loader than its steps had used (it takes them "
    "ahead, or leaves some out), and none of the usual orders of using them gives the recorded "
    "step: either it uses them in another one, or the program is another one"
)

MANY_DRAWS = (
    "the recorded loop drew random numbers between many of its steps, which a replay of step() "
    "does not; let step() draw them"
)

_WORKERS = (
    "persistent workers carry their generators from epoch to epoch: what they draw cannot be "
    "restored in the middle of a run"
)


@dataclass(slots=True)
class Reasons:
    """Collects the reasons of one replay.

    Attributes:
        others: in words.
        evaluated: steps before which the recorded program evaluated and drew random numbers.
        loaded: steps before which the recorded program put another state into its model.
        idle: steps for which the replayed program did not act.
    """

    others: list[str] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)

    def add(self, reason: str) -> None:
        """Note a reason."""
        if reason not in self.others:
            self.others.append(reason)

    def add_workers(self) -> None:
        """Note that workers live on."""
        self.add(_WORKERS)

    @property
    def told(self) -> tuple[str, ...]:
        """All of them."""
        return (
            *self.others,
            *self._about_idle(),
            *self._about_evaluations(),
            *self._about_loads(),
        )

    def _about_idle(self) -> Iterator[str]:
        if self.idle:
            yield (
                f"in {_listed(self.idle)} the recorded program took no batch from the loader that "
                "it had followed so far (it kept the batches, or has another loader), or the "
                "replayed one took no optimizer step: they cannot be executed alike"
            )

    def _about_evaluations(self) -> Iterator[str]:
        if self.evaluated:
            yield (
                f"before {_listed(self.evaluated)} the recorded program called modules without "
                "gradients (an evaluation) and drew random numbers that the replayed step does not "
                "draw; from there to the next checkpoint nothing is compared. Let step() do the "
                "same there, or evaluate between two epochs"
            )

    def _about_loads(self) -> Iterator[str]:
        if self.loaded:
            yield (
                f"before {_listed(self.loaded)} the recorded program put another state into its "
                "model (load_state_dict), which a replay does not; from there to the next "
                "checkpoint nothing is compared"
            )


def epoch_reason(step: int) -> str:
    """Say that a step is the first of an epoch, and that all was equal before it."""
    return (
        f"step {step} differs, and is the first one of an epoch, while those before it match: "
        "something that the program does or sets between two epochs and outside of step() (a "
        "number of its own, weights, data) may be what differs; what follows is not compared"
    )


def own_state_reason(names: Sequence[str], *, repeats: bool) -> str:
    """Say that steps depend on more than a checkpoint holds.

    Args:
        names: of what the program holds beside its parts, and changed in these steps.
        repeats: whether a program made anew gives the same bits each time.
    """
    told = "the same steps from the same checkpoint give other bits"
    if not repeats:
        return (
            f"executed twice, {told} each time, also when build() makes the program anew: it holds "
            "state outside of what build() makes, or it is not deterministic; what is recorded "
            "cannot be compared with it"
        )
    shown = ", ".join(names[:_MANY]) + (" and more" if len(names) > _MANY else "")
    what = f" ({shown})" if names else ""
    return (
        f"the steps depend on state of the program's own{what} that the checkpoint does not hold: "
        f"executed twice by one program, {told}. Give such state as extra to the capture and to "
        "the replay"
    )


def _listed(steps: Sequence[int]) -> str:
    shown = ", ".join(map(str, steps[:_MANY]))
    more = len(steps) - _MANY
    return (
        f"{'steps' if len(steps) > 1 else 'step'} {shown}{f' and {more} more' if more > 0 else ''}"
    )


def keeps_workers(segment: Segment, start: int) -> bool:
    """Whether workers of a loader had been at work in earlier epochs when step ``start`` began."""
    recorded = segment.environment
    later = any(one.entry.epoch > 0 and one.records <= start for one in segment.epochs)
    persistent = recorded.get("loader persistent workers") is True
    return persistent and bool(recorded.get("loader workers")) and later
