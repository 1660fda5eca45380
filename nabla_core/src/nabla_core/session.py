"""A session: collects, filters, dedups and bounds what the rules find, and ends in a report.

Facts go in (:meth:`Session.step`, :meth:`Session.emit`), issues come out. Nothing here knows torch.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .allowance import reason_to_allow
from .detector import Detector, FactSource, is_detector
from .listeners import Listeners, Observer
from .problem import Problem
from .records import Event, StepRecord
from .report import AllowedIssue, Report
from .rules import BAD_HOOK, RULE_RAISED
from .turns import Turn, Turns

if TYPE_CHECKING:
    from .config import Config
    from .host import PluginHost
    from .issue import Issue
    from .rule import Rule

__all__ = ["Session", "SessionOptions", "current_session"]

OptionsT = TypeVar("OptionsT")

_CURRENT: contextvars.ContextVar[Session | None] = contextvars.ContextVar(
    "nabla_session", default=None
)


def current_session() -> Session | None:
    """Return the innermost session of this context, if any."""
    return _CURRENT.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Bounds and labels of one session.

    Attributes:
        max_issues: distinct issues kept; further ones are counted as dropped.
        max_events: events kept; the oldest are dropped and counted.
        command: how reports call what was run.
        seed: seed given by the user.
        isolated: do not pass issues on to the session around this one.
    """

    max_issues: int = 1_000
    max_events: int = 10_000
    command: str = ""
    seed: int | None = None
    isolated: bool = False


class Session:
    """A bounded, context-local, nestable store of issues and events.

    Never swallows the user's exception. A detector that raises is reported once (NAB008), disabled,
    and the training goes on.

    Args:
        host: loaded plugins; by default those of the session around this one, or of this process.
        config: effective configuration; by default that of the session around this one, or the
            nearest configuration file and the ``NABLA_*`` variables.
        options: bounds and labels.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        host: PluginHost | None = None,
        config: Config | None = None,
        options: SessionOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from .config import Config
        from .host import default_host

        around = current_session()
        self.host: PluginHost = host or (around.host if around is not None else default_host())
        if config is None and around is not None and around.host is self.host:
            config = around.config
        self.config: Config = config or Config.discover(self.host)
        self.bounds = options or SessionOptions()
        self.selection = self.config.selection(self.host.registry)
        self.clock = clock
        self.started_s = clock()
        self.source: FactSource | None = None
        self.last_step = -1
        self.dropped = {"issues": 0, "events": 0}
        self.problems: list[Problem] = []
        self.allowed: list[AllowedIssue] = []
        self._issues: dict[str, Issue] = {}
        self._events: deque[Event] = deque(maxlen=self.bounds.max_events)
        self._turns = Turns()
        self._retired: set[str] = set()
        self._used: set[str] = set()
        self.undecided: dict[str, str] = {}
        self._listeners = Listeners(self)
        self._parent: Session | None = None
        self._entered = False
        self._report: Report | None = None

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Distinct issues, in the order in which they were found."""
        return tuple(self._issues.values())

    @property
    def events(self) -> tuple[Event, ...]:
        """The latest events."""
        return tuple(self._events)

    @property
    def detectors(self) -> tuple[Detector, ...]:
        """Active detectors, in the order in which they judge."""
        return self._turns.detectors

    @property
    def calm(self) -> bool:
        """Whether the source says that the present step does not differ from the ones before."""
        return self._turns.calm

    @calm.setter
    def calm(self, on: bool) -> None:
        self._turns.calm = on

    @property
    def rules_used(self) -> frozenset[str]:
        """IDs of the rules that were judged in this session."""
        return frozenset(self._used)

    @property
    def retired(self) -> frozenset[str]:
        """IDs of rules whose detector raised and was disabled."""
        return frozenset(self._retired)

    def options(self, cls: type[OptionsT]) -> OptionsT:
        """Return the effective options of a plugin, an instance of its dataclass ``cls``."""
        return self.config.options(cls)

    def selects(self, rule: Rule | str) -> bool:
        """Whether a rule, or any rule with this prefix, is selected."""
        return self.selection.selects(rule)

    def __enter__(self) -> Session:
        self._parent, self._entered = _CURRENT.get(), True
        _CURRENT.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered = False
        around = _CURRENT.get()
        while around is not None and not around._entered:  # not always left in reverse order
            around = around._parent
        _CURRENT.set(around)

    def connect(self, source: FactSource) -> None:
        """Say where the facts come from, and make the detectors of the selected rules.

        Rules whose ``needs`` the source does not offer end up as *not evaluated*. What is found
        goes to the configured sinks too, by way of the outermost session.
        """
        self.source = source
        if not self.bounds.isolated:
            self.use_sinks()
        self.host.call(self, "nabla_session_start", session=self)
        for detector in self.host.collect(self, "nabla_detectors", session=self):
            if is_detector(detector):
                self.add_detector(detector)
            else:
                self.problem(_no_detector(detector))

    def add_detector(self, detector: Detector) -> None:
        """Let ``detector`` judge, if one of its rules is selected and can be decided."""
        offers = self.source.offers if self.source is not None else frozenset()
        decidable = set()
        for rule in filter(self.selects, detector.rules):
            missing = sorted(set(rule.needs) - offers)
            if missing:
                self.undecide(
                    rule, f"needs {', '.join(missing)}, which {self._source_name} does not give"
                )
            else:
                decidable.add(rule.id)
        if decidable:
            self._used.update(decidable)
            self._turns.add(detector)

    def undecide(self, rule: Rule, reason: str) -> None:
        """Say that a selected rule could not be decided (for one target, say), and why."""
        if self.selects(rule):
            known = self.undecided.get(rule.id, "")
            if reason not in known:
                self.undecided[rule.id] = f"{known}; {reason}" if known else reason

    def use(self, rules: Iterable[Rule]) -> None:
        """Note rules that are decided outside a detector, e.g. by an operator check."""
        self._used.update(rule.id for rule in rules if self.selects(rule))

    def finish(self) -> Report:
        """Let the detectors judge the whole run; return the report (the same one every time)."""
        if self._report is None:
            from .finish import build_report

            self._judge(self._turns.due())
            self._report = self._listeners.close(build_report(self))
        return self._report

    def step(self, record: StepRecord) -> list[Issue]:
        """Judge one optimizer step and return the issues that are new."""
        self.last_step = max(self.last_step, record.step)
        turns = self._turns.of(record)
        return self._judge(turns) if turns else []

    def passes(self, step: int) -> bool:
        """Count a step that no detector needs a record of; return whether that is so."""
        if self._turns.needed:
            return False
        self.last_step = max(self.last_step, step)
        return True

    def emit(self, event: Event) -> None:
        """Keep an event; the oldest one is dropped and counted when there are too many."""
        if len(self._events) == self._events.maxlen:
            self.dropped["events"] += 1
        self._events.append(event)

    def add(self, issue: Issue) -> Issue | None:
        """Filter and store an issue; return it when it is new and kept, else ``None``."""
        filtered = self.selection.apply(issue)
        if filtered is None:
            return None
        excuse = reason_to_allow(filtered, self.host.registry) or self.config.baseline_reason(
            filtered
        )
        if excuse is not None:
            self._allow(filtered, *excuse)
            return None
        known = self._issues.get(filtered.fingerprint)
        if known is not None:
            self._issues[filtered.fingerprint] = known.seen_again(filtered.step)
            return None
        if len(self._issues) >= self.bounds.max_issues:
            self.dropped["issues"] += 1
            return None
        return self._keep(filtered)

    def replace(self, issue: Issue) -> None:
        """Store a completed version of a known issue (same rule and place)."""
        if issue.fingerprint in self._issues:
            self._issues[issue.fingerprint] = issue

    def subscribe(self, observer: Observer) -> None:
        """Call ``observer`` with every new issue, at once; see also ``listeners.ReportTaker``.

        One that raises is reported once (NAB004) and not called again.
        """
        self._listeners.add(observer)

    def use_sinks(self) -> None:
        """Send what is found to the configured sinks; :meth:`connect` does, unless isolated."""
        if self._parent is not None and not self.bounds.isolated:
            self._parent.use_sinks()
        else:
            self._listeners.use_sinks()

    def problem(self, problem: Problem) -> None:
        """Note a problem of nabla or a plugin, each once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def retire(self, detector: Detector, error: Exception) -> None:
        """Disable a detector that raised, and say so once."""
        self._turns.remove(detector)
        ids = [rule.id for rule in detector.rules]
        self._retired.update(ids)
        self.problem(
            Problem(
                rule=RULE_RAISED.id,
                plugin=self.host.registry.owner_of(ids[0]) if ids else "",
                message=f"{type(detector).__name__} ({', '.join(ids)}) raised "
                f"{type(error).__name__}: {error}",
                hint=RULE_RAISED.fix,
            )
        )

    @property
    def _source_name(self) -> str:
        return self.source.name if self.source is not None else "this session"

    def _judge(self, turns: list[Turn]) -> list[Issue]:
        new: list[Issue] = []
        known = self._turns.detectors
        for detector, judge, given in turns:
            if self._turns.detectors is not known and detector not in self._turns.detectors:
                continue  # retired in the meantime
            try:
                for issue in judge(given):
                    if (kept := self.add(issue)) is not None:
                        new.append(kept)
            except Exception as error:
                self.retire(detector, error)
        return new

    def _keep(self, issue: Issue) -> Issue:
        owned = self.host.with_owner(issue)
        final = self.host.rewrite(self, owned)
        self._issues[issue.fingerprint] = final  # a rewritten place must not make it new again
        self._listeners.tell(final)
        if self._parent is not None and not self.bounds.isolated:
            self._parent.add(final)
        return final

    def _allow(self, issue: Issue, reason: str, source: str) -> None:
        if all(entry.issue.fingerprint != issue.fingerprint for entry in self.allowed):
            self.allowed.append(AllowedIssue(issue=issue, reason=reason, source=source))


def _no_detector(given: object) -> Problem:
    return Problem(
        rule=BAD_HOOK.id,
        plugin=type(given).__module__.partition(".")[0],
        message=f"nabla_detectors gave a {type(given).__name__} without rules and step()",
        hint=BAD_HOOK.fix,
    )
