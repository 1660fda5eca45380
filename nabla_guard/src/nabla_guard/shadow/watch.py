"""Decides when a shadow sample of a watched loop is taken, and keeps the latest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loop.watch import EVERY_EVENT, Watch
from ..taps.instrument import INSTRUMENT
from ..taps.patching import Patches
from .findings import Sample
from .limits import Schedule
from .sample import ShadowSampler

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["ShadowWatch"]


class ShadowWatch(Watch):
    """Takes shadow samples before the optimizer acts.

    Attributes:
        schedule: the steps of :data:`nabla_guard.options.Shadow` ``"sample"``.
        fresh: samples that nobody has taken yet.
        taken: samples so far.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.schedule = Schedule()
        self.fresh: list[Sample] = []
        self.taken = 0
        self._sampler = ShadowSampler()
        self._due: dict[int, int] = {}
        self._asked = False
        self._sampled_at = (-1, 0)

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`: a sample that waits a few steps is as good."""
        return frozenset() if self.loop.shadow == "always" or self._asked else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        self._sampler.start()
        if self.loop.shadows:
            INSTRUMENT.keeper.start()  # also where no rule is selected that explains bad steps

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self._sampler.stop()

    def take(self) -> list[Sample]:
        """Return the samples since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def ask(self) -> None:
        """Take a sample of the next step, whatever the schedule says."""
        self._asked = True
        self.loop.calm.attend()

    def look(self) -> None:
        """Take a sample of the step that is being closed, region by region, if options allow any.

        One odd sample of a batch hardly moves the loss: what is judged by the loss would miss it.
        """
        if self.loop.shadow == "sample" and self.loop.numbers is None:
            self._sample(apart=True)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        if self.loop.numbers is not None or not self._is_due(id(record)):
            return  # what is not finite has its own explanation
        self._sample()

    def _sample(self, *, apart: bool = False) -> None:
        if self._sampled_at == (self.loop.index, id(self.loop.stepping)):
            return
        self._sampled_at = (self.loop.index, id(self.loop.stepping))
        self._asked = False
        self.taken += 1
        thorough = self.loop.shadow == "always"
        self.fresh.append(self._sampler.run(self.loop, thorough=thorough, apart=apart))

    def _is_due(self, key: int) -> bool:
        """Whether the schedule of one optimizer has reached the present step."""
        index = self.loop.index
        if self._asked or self.loop.shadow == "always":
            return True
        if self.loop.shadow == "off":
            return False
        early, every = self.schedule.early_steps, self.schedule.every_steps
        due = self._due.get(key, early[0] if early else every)
        if index < due or not (early or every):
            return False
        later = [step for step in early if step > index]
        self._due[key] = later[0] if later else index + (every or 1 << 62)
        return True
