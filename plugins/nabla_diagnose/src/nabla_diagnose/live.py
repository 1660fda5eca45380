"""``nabla.watch`` with a model: the live instrument gives the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.config import Config
from nabla_core.errors import UsageError
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.session import Session, SessionOptions
from nabla_guard.arming import arm, options_of
from nabla_guard.holding import Holdable
from nabla_guard.layers.roster import chooser
from nabla_guard.layers.watch import watch_layers
from nabla_guard.loop.live import LiveLoop
from nabla_guard.loop.scope import Scope, chosen_optimizers
from nabla_guard.taps.instrument import INSTRUMENT

from .live_detector import LiveDetector
from .probe import LayerProbe
from .run_report import RunReport
from .source import tell_absent

__all__ = ["LiveSession"]


class ProbedLoop(LiveLoop):
    """A live loop that can also give whatever a probe measures and the user logs."""

    @property
    def offers(self) -> frozenset[str]:
        """Names of the signals and facts that it can give."""
        from .rules import RULES

        return super().offers | {need for rule in RULES for need in rule.needs}


class LiveSession:
    """Watches the training of one model from now on until it is finished.

    Args:
        model: the model.
        optimizers: judge the steps of these; by default those that hold its parameters.
        config: effective configuration.
        every: in the long run, layers are measured in one of so many steps.

    Raises:
        UsageError: an argument is of the wrong type.
    """

    def __init__(
        self,
        model: Module,
        optimizers: Optimizer | Iterable[Optimizer] | None,
        config: Config,
        every: int,
    ) -> None:
        if not isinstance(model, Module):
            raise UsageError(f"watch({type(model).__name__}): needs a torch.nn.Module, or nothing")
        options = SessionOptions(command="nabla.watch")
        self.session = Session(host=default_host(), config=config, options=options)
        self._loop = ProbedLoop(self.session, Scope(model, chosen_optimizers(optimizers, "watch")))
        self._detector: LiveDetector | None = None
        self._open = True
        self._report: RunReport | None = None
        arm(self._loop, options_of(self.session))
        self.session.__enter__()
        INSTRUMENT.attach(self._loop)
        self._loop.connect()
        self._probe(model, every)

    def log(self, signals: Mapping[str, float]) -> list[Issue]:
        """Judge what the user logs besides; a loss that is measured anyway is left out."""
        if self._detector is None or not signals.keys() - {"loss"}:
            return []
        extra = {name: value for name, value in signals.items() if name != "loss"}
        found = map(self.session.add, self._detector.note(extra))
        return [issue for issue in found if issue is not None]

    def look_inside_for(self, contracts: Iterable[Holdable]) -> None:
        """Measure the outputs of leaf modules if any contract is about them."""
        wanted = any("activations" in contract.needs for contract in contracts)
        if wanted and not self._loop.layers.measures:
            watch_layers(self._loop, chooser())

    def finish(self) -> RunReport:
        """Stop watching and judge the whole run; the same report every time."""
        self.close()
        if self._report is None:
            if self._detector is not None:
                seen = {*self._detector.chart.seen, "layer_norms"}
                tell_absent(self.session, seen, "the loop")
            self._report = RunReport.of(self.session.finish())
        return self._report

    def close(self) -> None:
        """Let go of torch and of the user's tensors."""
        if not self._open:
            return
        self._open = False
        self._loop.watches.stop()  # what they replaced lies on top of the instrument's own
        INSTRUMENT.detach(self._loop)
        try:
            self._loop.close()
        finally:
            self.session.__exit__(None, None, None)

    # ------------------------------------------------------------------ private
    def _probe(self, model: Module, every: int) -> None:
        for detector in self.session.detectors:
            if isinstance(detector, LiveDetector):
                self._detector = detector
                probe = self._loop.facts.gather(LayerProbe)
                probe.follow(model, every)
                detector.use(probe)
