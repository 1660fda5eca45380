"""``nabla.guard``: watch a training loop for the length of a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Unpack, cast

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.config import Config
from nabla_core.errors import UsageError
from nabla_core.facade import public_name
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.records import Event
from nabla_core.report import NotEvaluated, Report
from nabla_core.session import Session, SessionOptions

from .arming import arm, not_held
from .deep.sites import OpRange
from .holding import Holdable, hold, split_contracts
from .loop.live import LiveLoop
from .loop.scope import Scope, chosen_optimizers
from .observation import observed
from .options import GuardArguments, GuardOptions, Mode, bind_options
from .shadow.watch import ShadowWatch
from .taps.instrument import INSTRUMENT
from .taps.place import user_place

__all__ = ["GuardOptions", "Mode", "Monitor", "guard"]


class Monitor:
    """Watches training loops while it is entered; it may be entered again and again.

    Args:
        session: receives what is found.
        scope: what of the process to watch.
        options: how to watch it.
        contracts: what it is held to besides the configured contracts.
    """

    def __init__(
        self,
        session: Session,
        scope: Scope,
        options: GuardOptions,
        contracts: Sequence[Holdable] = (),
    ) -> None:
        self.options = options
        self.session = session
        self._loop = LiveLoop(session, scope, options.on_nonfinite)
        self._layers = arm(self._loop, options)
        self._contracts = contracts
        self._not_held: tuple[NotEvaluated, ...] = ()
        self._entered = 0

    def __enter__(self) -> Monitor:
        if not self._entered:
            self.session.__enter__()
            INSTRUMENT.attach(self._loop)
            self._loop.connect()
            self._hold()
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

    @property
    def operations(self) -> Sequence[OpRange]:
        """The range of each op's results in each module so far; empty except in deep mode."""
        return () if self._layers is None else self._layers.operations

    def observe(self, tensor: Tensor, name: str = "") -> bool:
        """Look at one tensor now: its range becomes an event, and what is not finite an issue.

        Reads the tensor from its device and leaves it as it is.

        Args:
            tensor: any tensor.
            name: what messages call it.

        Returns:
            Whether every value is finite.

        Raises:
            UsageError: it is no tensor.
        """
        if not isinstance(tensor, Tensor):
            raise UsageError(f"observe({type(tensor).__name__}): needs a torch.Tensor")
        session, place = self.session, user_place()
        step = self._loop.coming
        look = observed(tensor, name or "the observed tensor", place, step)
        session.emit(
            Event(
                kind="observed",
                step=step,
                time_s=session.clock() - session.started_s,
                name=look.name,
                values=() if look.low is None or look.high is None else (look.low, look.high),
                where=None if place is None else place.location(),
            )
        )
        if look.issue is not None:
            session.add(look.issue)
        return look.issue is None

    def shadow(self) -> None:
        """Compare the forward pass of the coming step with float64, whatever the schedule says.

        Raises:
            UsageError: in mode light and without ``explain``: no step can be computed again then.
        """
        if not self._loop.shadows:
            raise UsageError(
                'shadow(): needs mode "standard" or "deep", and explain=True; '
                f"this guard has mode={self.options.mode!r}, explain={self.options.explain}"
            )
        self._loop.watches.gather(ShadowWatch).ask()

    def report(self) -> Report:
        """Judge the whole run and return the report; it stays the same from then on."""
        report = self.session.finish()
        open_wishes = (*self._not_held, *not_held(self.options, self.session))
        return replace(report, not_evaluated=(*report.not_evaluated, *open_wishes))

    def explain(self, kind: str | None = None) -> object:
        """Order what was found into causes: a ``nabla_causal.Explanation``, see ``nabla.explain``.

        After the ``with`` block this judges the whole run, as :meth:`report` does.

        Args:
            kind: only hypotheses about this, e.g. ``"vanishing_gradients"``.

        Raises:
            ModuleNotFoundError: nabla-causal is not installed.
            UsageError: there is no such kind.
        """
        explain = cast("Callable[[object, str | None], object]", public_name("explain"))
        return explain(self if self._entered else self.report(), kind)

    def print(self) -> None:
        """Print the report to standard output."""
        self.report().print()

    def _hold(self) -> None:
        """Hold the session to its contracts, once."""
        contracts, self._contracts = self._contracts, ()
        if contracts:
            raises = self.options.raise_on_failure
            self._not_held = hold(self.session, contracts, raise_on_failure=raises)


def guard(
    model: Module | None = None,
    *,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    **options: Unpack[GuardArguments],
) -> Monitor:
    """Watch a training loop; use the result in a ``with`` statement.

    Losses, gradients, parameters and the order of calls are observed and never changed. Issues are
    in ``monitor.issues`` as soon as they are found.

    Args:
        model: watch this model only; by default every module that the program calls.
        optimizer: judge the steps of this optimizer (or these) only; by default every optimizer
            that holds a parameter of ``model``, or every one of the process.
        options: fields of :class:`~nabla_guard.options.GuardOptions`: ``mode``, ``modules``,
            ``exclude``, ``operations``, ``every``, ``explain``, ``capture_source``,
            ``extreme_value_threshold``, ``contracts``, ``raise_on_failure``, ``max_events``,
            ``max_issues``, ``on_nonfinite``, ``shadow``. What is not given is taken from
            ``[tool.nabla.guard]`` and the ``NABLA_GUARD_*`` variables. With
            ``on_nonfinite="stop"`` a bad step ends in a
            :class:`~nabla_guard.origin.policy.NonFiniteStop`. ``contracts`` are those of
            ``nabla.contracts``, or names of configured ones; with ``raise_on_failure`` the first
            that is broken ends the run.

    Raises:
        UsageError: an argument is unknown, of the wrong type or out of range.
        ConfigError: the configuration file is wrong.

    Example::

        with nabla.guard(model, optimizer=optimizer) as monitor:
            train(model, optimizer)
        monitor.print()
    """
    if model is not None and not isinstance(model, Module):
        raise UsageError(
            f"guard(model={type(model).__name__}): needs a torch.nn.Module; "
            "leave it out to watch every module"
        )
    optimizers = chosen_optimizers(optimizer, "guard")
    host = default_host()
    config = Config.discover(host)
    known = config.options(GuardOptions) if GuardOptions in host.options.values() else None
    names, contracts = split_contracts(options.get("contracts", ()), "guard")
    given = {**options, "contracts": names} if "contracts" in options else options
    bound = bind_options(known or GuardOptions(), given)
    limits = SessionOptions(
        max_issues=bound.max_issues or config.core.max_issues,
        max_events=bound.max_events or config.core.max_events,
        command="nabla.guard",
    )
    session = Session(host=host, config=config, options=limits)
    return Monitor(session, Scope(model, optimizers), bound, contracts)
