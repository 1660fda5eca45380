"""What gradient scalers do: skipped steps, and the scale after each."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["ScaleFacts", "ScaleWatch"]

_WINDOW = 64
_MAX_SCALERS = 64
Scaler = torch.amp.GradScaler


@dataclass(slots=True, kw_only=True, eq=False)
class ScaleFacts:
    """What is known of one scaler.

    Attributes:
        initial: its scale when it was first seen to skip.
        scale: its scale after the last skip.
        in_a_row: skips since the last step that was made.
        updates: updates since the first step that was made.
        recent: whether each of the last updates since then skipped.
        growth_interval: good steps after which the scale is raised.
    """

    initial: float = 0.0
    scale: float = 0.0
    in_a_row: int = 0
    updates: int = 0
    recent: deque[bool]
    growth_interval: int = 2000

    @property
    def skipped_share(self) -> float:
        """Share of the recent updates that skipped."""
        return sum(self.recent) / len(self.recent) if self.recent else 0.0


class ScaleWatch(Watch):
    """Counts the steps that scalers skip.

    The scale is read from its device only after a skip, when the scaler has read from it as well.

    Attributes:
        facts: of each scaler, also after its end.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.facts: list[ScaleFacts] = []
        self._known: weakref.WeakKeyDictionary[Scaler, ScaleFacts] = weakref.WeakKeyDictionary()
        self._stepped = False
        self._asked = False

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self.facts else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        patches.replace(Scaler, "step", self._wrap_step)
        patches.replace(Scaler, "update", self._wrap_update)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self._stepped = True

    def _wrap_step(self, original: Replacement) -> Replacement:
        def step(scaler: Scaler, optimizer: Optimizer, *args: object, **kwargs: object) -> object:
            self.guarded(self._begin(scaler))
            return original(scaler, optimizer, *args, **kwargs)

        return step

    def _wrap_update(self, original: Replacement) -> Replacement:
        def update(scaler: Scaler, *args: object, **kwargs: object) -> object:
            outcome = original(scaler, *args, **kwargs)
            self.guarded(lambda: self._note_update(scaler))
            return outcome

        return update

    def _begin(self, scaler: Scaler) -> Callable[[], None]:
        def begin() -> None:
            self._asked = True
            if scaler.is_enabled() and scaler not in self._known:
                interval = int(scaler.get_growth_interval())
                recent: deque[bool] = deque(maxlen=_WINDOW)
                facts = ScaleFacts(growth_interval=interval, recent=recent)
                self._known[scaler] = facts
                self.facts = [*self.facts[-_MAX_SCALERS:], facts]
                self.loop.calm.attend()

        return begin

    def _note_update(self, scaler: Scaler) -> None:
        facts = self._known.get(scaler)
        if facts is None or not self._asked:
            return
        skipped, self._stepped, self._asked = not self._stepped, False, False
        if skipped:
            facts.in_a_row += 1
            facts.scale = float(scaler.get_scale())
            facts.initial = facts.initial or facts.scale / scaler.get_backoff_factor()
        else:
            facts.in_a_row = 0
        if facts.updates or not skipped:
            facts.updates += 1
            facts.recent.append(skipped)
