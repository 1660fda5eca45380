"""``nabla.watch``: judge a run while it goes on, row by row."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Unpack

from nabla_core.errors import UsageError
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.records import StepRecord

from .calm_rows import CalmRows
from .engine import Hints, RunSession, run_config
from .live_detector import aligned
from .run_report import RunReport

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from nabla_core.config import Config
    from nabla_guard.holding import Holdable

    from .live import LiveSession

__all__ = ["Alert", "Run", "WatchOptions", "watch"]

Alert = Callable[[Issue], None]


class WatchOptions(TypedDict, total=False):
    """Keyword arguments of :func:`watch`.

    Attributes:
        hints: what is declared about the run: loss, classes, batch_size, accumulate,
            planned_steps, optimizer, log_every.
        mute: rules that are not wanted: IDs, names, prefixes or the codes of other tools.
        on_alert: called with every new issue, at once.
        check_every: with a model: in the long run, layers are measured in one of so many steps.
        quiet: print nothing.
        contracts: what must hold, see nabla-contracts.
        raise_on_failure: end the run at the first contract that is broken.
    """

    hints: Hints | None
    mute: Iterable[str]
    on_alert: Alert | None
    check_every: int
    quiet: bool
    contracts: Iterable[Holdable]
    raise_on_failure: bool


class Run:
    """A run that is watched, by what it logs or by its steps. Usable as a context manager."""

    def __init__(self, session: RunSession | LiveSession, *, quiet: bool = False) -> None:
        self._run = session
        self._rows = session if isinstance(session, RunSession) else None
        self._waiting: CalmRows | None = None
        self._quiet = quiet
        self._started_s = time.monotonic()
        self._layout: tuple[str, ...] = ()
        self._next_step = 0
        self._end_if_broken: Callable[[], None] = _go_on

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Distinct issues so far."""
        return self._run.session.issues

    def log(
        self,
        step: int | None = None,
        loss: float | None = None,
        val_loss: float | None = None,
        *,
        layers: Mapping[str, Mapping[str, float]] | None = None,
        **signals: float | None,
    ) -> list[Issue]:
        """Take one row in and return the issues that it raised, each once.

        With a model the steps are seen by themselves: log what cannot be measured, such as a
        validation loss.

        Args:
            step: optimizer step; counted from 0 when left out.
            loss: training loss of the step.
            val_loss: validation loss, when there was an evaluation.
            layers: measurement to layer to value, e.g. ``{"grad_norm": {"head": 0.3}}``.
            **signals: further numbers, e.g. ``lr``, ``grad_norm``, ``update_ratio``. ``None`` means
                not measured; NaN is a value.
        """
        if step is None:
            step = self._next_step
        elif type(step) is not int:
            step = int(step)
        self._next_step = step + 1
        if loss is not None:
            signals["loss"] = loss
        if val_loss is not None:
            signals["val_loss"] = val_loss
        waiting = self._waiting
        if waiting is not None and not layers and waiting.take(step, signals):
            return [] if waiting.room else self._complete(step)
        if self._rows is not None and not layers:
            issues = self._rows.take_row(step, signals)
            self._waiting = self._rows.waiting
            if issues is not None:
                return issues
        known = {name: float(value) for name, value in signals.items() if value is not None}
        if not isinstance(self._run, RunSession):
            return self._run.log(known)
        record = StepRecord(
            step=step,
            time_s=time.monotonic() - self._started_s,
            signals=known,
            layers=self._aligned(layers) if layers else {},
            layout=self._layout if layers else (),
        )
        issues = self._run.take(record)
        self._end_if_broken()
        return issues

    def hold(self, contracts: Iterable[Holdable], *, raise_on_failure: bool = False) -> None:
        """Hold the run to contracts from now on.

        Args:
            contracts: those of nabla-contracts.
            raise_on_failure: end the run at the first that is broken; with rows, in :meth:`log`.

        Raises:
            UsageError: one of them is no contract.
        """
        from nabla_guard.holding import hold, obey, split_contracts

        session = self._run.session
        if self._rows is not None:
            self._rows.settle()
        _, given = split_contracts(contracts, "watch")
        if not isinstance(self._run, RunSession):
            self._run.look_inside_for(given)
        for missing in hold(session, given, raise_on_failure=raise_on_failure):
            print(f"nabla: {missing.reason}", file=sys.stderr)
        self._end_if_broken = lambda: obey(session)

    def report(self) -> RunReport:
        """Finish, and print the report unless the run was asked to be quiet."""
        report = self.finish()
        if not self._quiet:
            report.print()
        return report

    def finish(self) -> RunReport:
        """Judge the whole run and return the report; the same one every time."""
        return self._run.finish()

    # ------------------------------------------------------------------ private
    def _complete(self, step: int) -> list[Issue]:
        return [] if self._rows is None else self._rows.complete_rows(step)

    def _aligned(self, layers: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
        known = dict.fromkeys(self._layout)
        new = [name for column in layers.values() for name in column if name not in known]
        if new:
            self._layout = tuple(dict.fromkeys((*self._layout, *new)))
        return aligned(layers, self._layout)


def watch(
    model: Module | None = None,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    **options: Unpack[WatchOptions],
) -> Run:
    """Watch a run: with a model by its steps, without one by what it logs.

    With a model nothing needs to be logged: losses, gradients, updates and layers are measured, and
    what the live instrument of nabla-guard decides is decided too. Nothing is changed.

    Args:
        model: the model that is trained.
        optimizer: judge the steps of this optimizer (or these) only; by default those that hold
            parameters of the model.
        **options: see :class:`WatchOptions`.

    Raises:
        UsageError: an argument is of the wrong type, or nabla-guard is not installed.
        ConfigError: a hint is unknown or of the wrong type.
        SelectorError: nothing is called as ``mute`` says.

    Example::

        with nabla.watch(model, optimizer) as run:
            train(model, optimizer)
        run.report()
    """
    config = run_config(default_host(), options.get("hints"), options.get("mute", ()))
    quiet, alert = options.get("quiet", False), options.get("on_alert")
    session: RunSession | LiveSession
    if model is None:
        session = RunSession("run", config, command="nabla.watch")
        session.session.use_sinks()
    else:
        session = _live(model, optimizer, config, options.get("check_every", 50))
    if not quiet:
        session.session.subscribe(_tell)
    if alert is not None:
        session.session.subscribe(alert)
    run = Run(session, quiet=quiet)
    contracts = options.get("contracts", ())
    if contracts:
        run.hold(contracts, raise_on_failure=options.get("raise_on_failure", False))
    return run


def _live(
    model: Module,
    optimizer: Optimizer | Iterable[Optimizer] | None,
    config: Config,
    check_every: int,
) -> LiveSession:
    if check_every < 1:
        raise UsageError(f"watch(check_every={check_every}): needs at least 1 step")
    try:
        from .live import LiveSession
    except ModuleNotFoundError as error:
        raise UsageError(
            f"watch(model) needs {error.name}, which is not installed; "
            'run: pip install "nabla[diagnose,guard]"'
        ) from error
    return LiveSession(model, optimizer, config, check_every)


def _go_on() -> None:
    """Nothing can end the run."""


def _tell(issue: Issue) -> None:
    """Say a verdict on stderr, at once."""
    if issue.severity > issue.severity.INFO:
        print(f"nabla: {issue.rule} step {issue.step}: {issue.message}", file=sys.stderr)
