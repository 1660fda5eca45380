import sys
import types

import pytest

from nabla_core import Session, SessionOptions
from nabla_core.config import Config
from nabla_core.errors import UsageError
from nabla_core.host import PluginHost
from nabla_core.layers import Layer
from nabla_core.listeners import known_sink
from nabla_core.testing import FakeSource

SINK_PLUGIN = """
from nabla_core.declarations import Sink
from nabla_core.hookspecs import hookimpl

@hookimpl
def nabla_sinks():
    return [
        Sink(name="notes", target="kept_notes:open_sink"),
        Sink(name="absent", target="kept_notes:open_sink", requires="nobody_has_this_module"),
    ]
"""


class Notes:
    """A sink that keeps what it is told."""

    opened = 0

    def __init__(self):
        self.issues, self.reports = [], []

    def __call__(self, issue):
        self.issues.append(issue)

    def take_report(self, report):
        self.reports.append(report)


class Broken(Notes):
    calls = 0

    def __call__(self, issue):
        self.calls += 1
        raise OSError("the disk is full")


@pytest.fixture
def host(write_plugin, rule_source):
    return PluginHost([write_plugin("acme", rule_source()), write_plugin("tracking", SINK_PLUGIN)])


@pytest.fixture
def rule(host):
    return host.registry.get("ACM101")


@pytest.fixture
def notes(monkeypatch):
    """The sinks that were opened."""
    opened = []
    module = types.ModuleType("kept_notes")
    module.open_sink = lambda config: opened.append(Notes()) or opened[-1]
    monkeypatch.setitem(sys.modules, "kept_notes", module)
    return opened


def session_with(host, *sinks, **options):
    layers = [Layer(source="test", style="file", values={"sinks": list(sinks)})]
    return Session(host=host, config=Config(host, layers), options=SessionOptions(**options))


def test_a_configured_sink_gets_every_new_issue_and_the_report_once(host, rule, notes):
    session = session_with(host, "notes")
    session.connect(FakeSource())
    for place in ("first", "second", "second"):
        session.add(rule.issue(place, artifact=place, where=None, step=3))
    report = session.finish()

    (sink,) = notes
    assert [issue.message for issue in sink.issues] == ["first"]
    assert [taken.issues for taken in sink.reports] == [report.issues]
    assert session.finish() is report
    assert len(sink.reports) == 1


def test_a_sink_that_nobody_chose_is_not_opened(host, rule, notes):
    session = session_with(host)
    session.connect(FakeSource())
    session.add(rule.issue("something"))
    session.finish()

    assert notes == []


def test_sessions_inside_another_one_and_isolated_ones_open_none(host, rule, notes):
    with session_with(host, "notes") as outer:
        for inner in (session_with(host, "notes"), session_with(host, "notes", isolated=True)):
            with inner:
                inner.connect(FakeSource())
                inner.add(rule.issue("something"))
                inner.finish()
    report = outer.finish()

    (sink,) = notes
    assert len(sink.issues) == 1
    assert [len(taken.issues) for taken in sink.reports] == [len(report.issues)]


def test_a_listener_that_raises_is_reported_once_and_nobody_else_suffers(host, rule, monkeypatch):
    broken, heard = Broken(), []
    session = session_with(host)
    session.subscribe(broken)
    session.subscribe(heard.append)
    for function in ("one", "two", "three"):
        session.add(rule.issue(function, where=place(function)))
    report = session.finish()

    assert broken.calls == 1
    assert broken.reports == []
    assert len(heard) == len(report.issues) == 3
    (problem,) = [entry for entry in report.problems if entry.rule == "NAB004"]
    assert "OSError: the disk is full" in problem.message


def place(function):
    from nabla_core import Location

    return Location(function=function)


def test_a_sink_that_fails_on_the_report_is_in_the_report(host):
    class Late(Notes):
        def take_report(self, report):
            raise ConnectionError("gone")

    session = session_with(host)
    session.subscribe(Late())

    assert [entry.message for entry in session.finish().problems] == [
        "raised and is not called again: ConnectionError: gone"
    ]


def test_a_client_that_is_not_installed_is_named(host, rule, notes):
    session = session_with(host, "absent")
    session.connect(FakeSource())
    (problem,) = session.finish().problems

    assert notes == []
    assert "nobody_has_this_module, which is not installed" in problem.message
    assert problem.hint == "run: pip install nobody_has_this_module"


def test_an_unknown_sink_is_a_problem_of_the_configuration_not_of_the_training(host):
    session = session_with(host, "note")
    session.connect(FakeSource())
    (problem,) = session.finish().problems

    assert problem.rule == "NAB006"
    assert "did you mean 'notes'?" in problem.message


def test_the_command_line_refuses_an_unknown_sink(host):
    with pytest.raises(UsageError, match="choose one of absent, notes"):
        known_sink(host, "note")
    with pytest.raises(UsageError, match=r'pip install "nabla\[trackers\]"'):
        known_sink(PluginHost([]), "tensorboard")
