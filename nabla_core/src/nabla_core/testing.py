"""For authors of rules: run a detector over made-up facts and judge what it says.

::

    from nabla_core.testing import find, records

    def test_reports_a_loss_above_the_ceiling():
        assert [issue.step for issue in find(LossCeiling(), records(loss=[1.0, 99.0]))] == [1]

    def test_is_silent_just_below():
        assert find(LossCeiling(), records(loss=[1.0, 9.9])) == []
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .config import Config
from .detector import Detector, Finisher
from .discovery import FoundPlugin
from .errors import InputError
from .host import PluginHost
from .issue import Issue
from .layers import Layer
from .records import StepRecord
from .session import Session, SessionOptions

__all__ = ["FakeSource", "check_rule", "fake_session", "find", "host_with", "records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSource:
    """A source of facts that offers the named signals."""

    name: str = "test"
    offers: frozenset[str] = field(default_factory=frozenset)


def records(first_step: int = 0, **signals: Sequence[float | None]) -> list[StepRecord]:
    """Return one record per step from series of equal length; ``None`` means not measured.

    Raises:
        InputError: the series differ in length.
    """
    lengths = {name: len(series) for name, series in signals.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"records(): all signals need one length, got {lengths}")
    return [
        StepRecord(
            step=first_step + index,
            time_s=float(index),
            signals={
                name: value
                for name, series in signals.items()
                if (value := series[index]) is not None
            },
        )
        for index in range(max(lengths.values(), default=0))
    ]


def find(detector: Detector, facts: Iterable[StepRecord]) -> list[Issue]:
    """Return every issue that ``detector`` yields over ``facts``, the end of the run included."""
    found = [issue for record in facts for issue in detector.step(record)]
    if isinstance(detector, Finisher):
        found += detector.finish()
    return found


def check_rule(
    detector: Detector, *, bad: Iterable[StepRecord], good: Iterable[StepRecord], rule: str
) -> None:
    """Fail unless ``rule`` is reported on ``bad`` and nothing is on ``good``.

    Pass a detector without state, or call :func:`find` with two detectors instead.

    Raises:
        AssertionError: the rule is missing on ``bad``, or anything was found on ``good``.
    """
    noise = find(detector, good)
    if noise:
        raise AssertionError(f"the healthy case is reported: {noise[0].rule} {noise[0].message}")
    ids = {issue.rule for issue in find(detector, bad)}
    if rule not in ids:
        raise AssertionError(
            f"{rule} is not reported on the faulty case; found {sorted(ids) or 'nothing'}"
        )


def host_with(*modules: str) -> PluginHost:
    """Return a host that has loaded the core and the given plugin modules only."""
    found = [FoundPlugin(name=module.partition(".")[0], module=module) for module in modules]
    return PluginHost(found)


def fake_session(
    host: PluginHost | None = None,
    *,
    offers: Iterable[str] = (),
    settings: dict[str, object] | None = None,
    options: SessionOptions | None = None,
) -> Session:
    """Return a session that reads no file and no variable, connected to a :class:`FakeSource`.

    Args:
        host: loaded plugins; by default the core alone.
        offers: signals that the source gives.
        settings: configuration as in ``[tool.nabla]``.
        options: bounds and labels.
    """
    host = host or PluginHost([])
    layers = [Layer(source="test", style="file", values=settings)] if settings else []
    session = Session(host=host, config=Config(host, layers), options=options)
    session.connect(FakeSource(offers=frozenset(offers)))
    return session
