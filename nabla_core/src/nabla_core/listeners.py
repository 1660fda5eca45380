"""Who hears of new issues at once: observers of a session, and the trackers that were selected.

One that raises is told once (NAB004) and not called again; the training goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from .binder import closest
from .errors import PluginError, UsageError
from .problem import Problem
from .rules import CONFIG_WITHOUT_PLUGIN, HOOK_RAISED

if TYPE_CHECKING:
    from .config import Config
    from .host import PluginHost
    from .issue import Issue
    from .report import Report
    from .session import Session

__all__ = ["Listeners", "Observer", "ReportTaker", "known_sink"]

Observer = Callable[["Issue"], None]


@runtime_checkable
class ReportTaker(Protocol):
    """An observer that also wants the report: a tracker that keeps it, for example."""

    def take_report(self, report: Report) -> None:
        """Take the finished report in, and let go; called once."""


def known_sink(host: PluginHost, name: str) -> str:
    """Return ``name`` if a loaded plugin has a sink of that name.

    Raises:
        UsageError: nobody has; the message names all sinks and the nearest.
    """
    names = sorted(sink.name for sink in host.sinks)
    if name in names:
        return name
    if not names:
        raise UsageError(f'sink {name!r} is not installed; run: pip install "nabla[trackers]"')
    raise UsageError(f"sink {name!r}: choose one of {', '.join(names)}{closest(name, names)}")


class Listeners:
    """Tells observers of new issues, and at the end gives the report to those who want it.

    Args:
        session: whose issues they are; problems of a listener are noted there.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._observers: list[Observer] = []
        self._waiting: list[str] | None = None

    def add(self, observer: Observer) -> None:
        """Call ``observer`` with every new issue from now on."""
        self._observers.append(observer)

    def use_sinks(self) -> None:
        """Tell the configured sinks too. Each is opened at the first issue, or for the report.

        Opening late lets a program start the run of its tracker in its own time. An unknown sink is
        a problem (NAB006) and no error: several environments often share one configuration.
        """
        if self._waiting is None:
            names = dict.fromkeys(self._session.config.core.sinks)
            self._waiting = [name for name in names if self._is_known(name)]

    def tell(self, issue: Issue) -> None:
        """Pass a new issue on."""
        self._open()
        for observer in tuple(self._observers):
            self._guarded(observer, partial(observer, issue))

    def close(self, report: Report) -> Report:
        """Give the report to those who want it; return it with the problems that this made."""
        known = len(self._session.problems)
        self._open()
        for observer in tuple(self._observers):
            if isinstance(observer, ReportTaker):
                self._guarded(observer, partial(observer.take_report, report))
        self._observers.clear()
        new = self._session.problems[known:]
        return replace(report, problems=(*report.problems, *new)) if new else report

    def _is_known(self, name: str) -> bool:
        try:
            known_sink(self._session.host, name)
        except UsageError as error:
            rule = CONFIG_WITHOUT_PLUGIN
            self._session.problem(
                Problem(rule=rule.id, plugin="core", message=str(error), hint=rule.fix)
            )
            return False
        return True

    def _open(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for name in waiting:
            try:
                self._observers.append(_opened(self._session.host, self._session.config, name))
            except Exception as error:
                self._report(f"the sink {name}", "could not be opened", error)

    def _guarded(self, observer: Observer, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._observers.remove(observer)
            self._report(_name_of(observer), "raised and is not called again", error)

    def _report(self, who: str, what: str, error: Exception) -> None:
        hint = error.hint if isinstance(error, PluginError) else ""
        self._session.problem(
            Problem(
                rule=HOOK_RAISED.id,
                plugin=who,
                message=f"{what}: {type(error).__name__}: {error}",
                hint=hint or "Mend it, or leave it out; the issues are in the report all the same.",
            )
        )


def _opened(host: PluginHost, config: Config, name: str) -> Observer:
    sink = next(sink for sink in host.sinks if sink.name == name)
    if sink.requires and find_spec(sink.requires) is None:
        raise PluginError(
            HOOK_RAISED.id,
            f"it needs {sink.requires}, which is not installed",
            f"run: pip install {sink.requires}",
        )
    return cast("Callable[[Config], Observer]", sink.load())(config)


def _name_of(observer: Observer) -> str:
    kind = type(observer)
    named = getattr(observer, "__qualname__", "") or kind.__qualname__
    module = getattr(observer, "__module__", kind.__module__)
    return f"the observer {module}.{named}"
