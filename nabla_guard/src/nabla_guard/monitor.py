"""``nabla.guard``: watch a training loop for the length of a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.config import Config
from nabla_core.errors import UsageError
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.records import Event
from nabla_core.report import NotEvaluated, Report
from nabla_core.session import Session, SessionOptions

from .loop.live import LiveLoop
from .loop.scope import Scope
from .origin.policy import POLICIES, OnNonFinite
from .taps.instrument import INSTRUMENT

__all__ = ["GuardOptions", "Mode", "Monitor", "guard"]

Mode = Literal["light", "standard", "deep"]
"""How closely a loop is watched; ``light`` names no operation of a bad step."""

_MODES = ("light", "standard", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """How a loop is watched.

    Attributes:
        mode: see :data:`Mode`.
        max_events: events kept.
        max_issues: distinct issues kept.
        on_nonfinite: what to do with a step whose loss or gradients are not finite.
    """

    mode: Mode = "standard"
    on_nonfinite: OnNonFinite = "report"
    max_events: int = 10_000
    max_issues: int = 1_000


class Monitor:
    """Watches training loops while it is entered; it may be entered again and again.

    Args:
        scope: what of the process to watch.
        options: how to watch it.
    """

    def __init__(self, scope: Scope, options: GuardOptions) -> None:
        host = default_host()
        self.options = options
        self.session = Session(
            host=host,
            config=Config.discover(host),
            options=SessionOptions(
                max_issues=options.max_issues,
                max_events=options.max_events,
                command="nabla.guard",
            ),
        )
        self._loop = LiveLoop(self.session, scope, options.on_nonfinite)
        self._loop.explains = options.mode != "light"
        self._entered = 0

    def __enter__(self) -> Monitor:
        if not self._entered:
            self.session.__enter__()
            INSTRUMENT.attach(self._loop)
            self._loop.connect()
        self._entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered -= 1
        if self._entered:
            return
        self._loop.watches.stop()  # what they replaced lies on top of the instrument's own
        INSTRUMENT.detach(self._loop)
        try:
            self._loop.close()
        finally:
            self.session.__exit__(kind, error, trace)

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Distinct issues so far, in the order in which they were found."""
        return self.session.issues

    @property
    def events(self) -> tuple[Event, ...]:
        """The latest events."""
        return self.session.events

    @property
    def steps(self) -> int:
        """Optimizer steps seen so far."""
        return self.session.last_step + 1

    def report(self) -> Report:
        """Judge the whole run and return the report; it stays the same from then on."""
        report = self.session.finish()
        if self.options.mode == "light":
            return report
        note = NotEvaluated(
            rule="NUM",
            reason=f"mode {self.options.mode} measures what light does, losses, gradients and "
            "parameters at the step boundary; inside the model only a bad step is looked at",
        )
        return replace(report, not_evaluated=(*report.not_evaluated, note))

    def print(self) -> None:
        """Print the report to standard output."""
        self.report().print()


def guard(
    model: Module | None = None,
    *,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    mode: Mode = "standard",
    on_nonfinite: OnNonFinite = "report",
    max_events: int = 10_000,
    max_issues: int = 1_000,
) -> Monitor:
    """Watch a training loop; use the result in a ``with`` statement.

    Losses, gradients, parameters and the order of calls are observed and never changed. Issues are
    in
    ``monitor.issues`` as soon as they are found.

    Args:
        model: watch this model only; by default every module that the program calls.
        optimizer: judge the steps of this optimizer (or these) only; by default every optimizer
            that
            holds a parameter of ``model``, or every one of the process.
        mode: ``"light"``, ``"standard"`` or ``"deep"``; all of them measure losses, gradients and
            parameters at the step boundary.
        on_nonfinite: ``"report"`` a step that is not finite, ``"stop"`` before it with a
            :class:`~nabla_guard.origin.policy.NonFiniteStop`, or ``"skip"`` it.
        max_events: events kept, the oldest are dropped and counted.
        max_issues: distinct issues kept.

    Raises:
        UsageError: an argument is of the wrong type, or the mode is unknown.
        ConfigError: the configuration file is wrong.

    Example::

        with nabla.guard(model, optimizer=optimizer) as monitor:
            train(model, optimizer)
        monitor.print()
    """
    if mode not in _MODES:
        raise UsageError(f"guard(mode={mode!r}): choose one of {', '.join(_MODES)}")
    if model is not None and not isinstance(model, Module):
        raise UsageError(
            f"guard(model={type(model).__name__}): needs a torch.nn.Module; "
            "leave it out to watch every module"
        )
    if on_nonfinite not in POLICIES:
        raise UsageError(
            f"guard(on_nonfinite={on_nonfinite!r}): choose one of {', '.join(POLICIES)}"
        )
    options = GuardOptions(
        mode=mode, max_events=max_events, max_issues=max_issues, on_nonfinite=on_nonfinite
    )
    return Monitor(Scope(model, _optimizers(optimizer)), options)


def _optimizers(given: Optimizer | Iterable[Optimizer] | None) -> tuple[Optimizer, ...]:
    """Return the optimizers as a tuple.

    Raises:
        UsageError: one of them is no optimizer.
    """
    if given is None:
        return ()
    chosen = (given,) if isinstance(given, Optimizer) else tuple(given)
    for found in chosen:
        if not isinstance(found, Optimizer):
            raise UsageError(
                f"guard(optimizer={type(found).__name__}): needs a torch.optim.Optimizer, or "
                f"several"
            )
    return chosen
