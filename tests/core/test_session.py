import pytest

from nabla_core import Event, Location, Session, SessionOptions, allow, current_session
from nabla_core.baseline import Baseline
from nabla_core.errors import CheckFailed, ConfigError, SelectorError, UsageError
from nabla_core.host import PluginHost
from nabla_core.testing import fake_session, records


class Ceiling:
    def __init__(self, rule, limit=10.0):
        self.rules = (rule,)
        self.limit = limit

    def step(self, record):
        if record.signals["loss"] > self.limit:
            yield self.rules[0].issue("too high", step=record.step)


class Failing(Ceiling):
    def step(self, record):
        raise ZeroDivisionError("boom")


@pytest.fixture
def host(write_plugin, rule_source):
    return PluginHost([write_plugin("acme", rule_source())])


@pytest.fixture
def rule(host):
    return host.registry.get("ACM101")


def feed(session, losses):
    return [issue for record in records(loss=losses) for issue in session.step(record)]


def test_the_same_place_is_one_issue_with_a_count(host, rule):
    session = fake_session(host, offers=["loss"])
    session.add_detector(Ceiling(rule))
    new = feed(session, [1, 11, 12, 1, 13])

    assert [issue.step for issue in new] == [1]
    (issue,) = session.issues
    assert (issue.step, issue.last_step, issue.count, issue.plugin) == (1, 4, 3, "acme")


def test_a_rule_whose_facts_are_missing_is_reported_as_not_evaluated(host, rule):
    session = fake_session(host, offers=["lr"])
    session.add_detector(Ceiling(rule))
    report = session.finish()

    assert session.detectors == ()
    assert report.rules_used == ()
    (entry,) = report.not_evaluated
    assert entry.rule == "ACM101"
    assert "needs loss, which test does not give" in entry.reason


def test_an_ignored_rule_costs_no_detector(host, rule):
    session = fake_session(host, offers=["loss"], settings={"ignore": ["ACM101"]})
    session.add_detector(Ceiling(rule))
    assert session.detectors == ()
    assert session.finish().not_evaluated == ()
    assert session.add(rule.issue("m")) is None


def test_a_detector_that_raises_is_disabled_and_the_others_go_on(host, rule):
    session = fake_session(host, offers=["loss"])
    session.add_detector(Failing(rule))
    session.add_detector(Ceiling(rule))
    feed(session, [11, 12])
    report = session.finish()

    assert [problem.rule for problem in report.problems] == ["NAB008"]
    assert "ZeroDivisionError: boom" in report.problems[0].message
    assert len(session.detectors) == 1
    assert report.issues[0].count == 2


def test_bounds_drop_and_count(host, rule):
    session = fake_session(host, options=SessionOptions(max_issues=2, max_events=3))
    for index in range(5):
        session.add(rule.issue("m", where=Location(module=str(index))))
        session.emit(Event(kind="x", step=index, time_s=0.0))
    report = session.finish()

    assert len(report.issues) == 2
    assert [event.step for event in session.events] == [2, 3, 4]
    assert report.dropped == {"issues": 3, "events": 2}
    assert [problem.rule for problem in report.problems] == ["NAB009", "NAB009"]


def test_sessions_nest_and_pass_issues_on(host, rule):
    assert current_session() is None
    with fake_session(host) as outer:
        with fake_session(host) as inner:
            assert current_session() is inner
            inner.add(rule.issue("m"))
        with fake_session(host, options=SessionOptions(isolated=True)) as alone:
            alone.add(rule.issue("m", where=Location(module="x")))
        assert current_session() is outer
        assert len(outer.issues) == 1
    assert current_session() is None


def test_an_inner_session_uses_the_plugins_and_settings_around_it(host):
    with fake_session(host, settings={"fail-on": "low"}) as outer:
        inner = Session()
        assert inner.host is outer.host
        assert inner.config is outer.config


def test_the_users_exception_passes_untouched(host):
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, fake_session(host):
        raise error
    assert caught.value is error
    assert current_session() is None


def test_observers_hear_each_new_issue_once(host, rule):
    heard = []
    session = fake_session(host)
    session.subscribe(heard.append)
    session.add(rule.issue("m", step=1))
    session.add(rule.issue("m", step=2))
    assert [issue.step for issue in heard] == [1]


def test_a_plugin_may_rewrite_an_issue(write_plugin, rule_source):
    source = rule_source() + (
        "from dataclasses import replace\n"
        "@hookimpl\ndef nabla_issue(issue):\n    return replace(issue, message='rewritten')\n"
    )
    host = PluginHost([write_plugin("acme", source)])
    session = fake_session(host)
    session.add(host.registry.get("ACM101").issue("m"))
    session.add(host.registry.get("ACM101").issue("m"))
    assert [(issue.message, issue.count) for issue in session.issues] == [("rewritten", 2)]


def test_allowed_issues_are_shown_with_their_reason(host, rule, monkeypatch):
    from nabla_core import host as host_module

    host_module.use_host(host)
    session = fake_session(host)
    with allow("acme-rule", reason="known upstream bug"):
        assert session.add(rule.issue("m")) is None
    session.add(rule.issue("m", where=Location(module="x")))
    report = session.finish()
    host_module.use_host(PluginHost())

    assert [(entry.reason, entry.source) for entry in report.allowed] == [
        ("known upstream bug", "nabla.allow")
    ]
    assert len(report.issues) == 1


@pytest.mark.parametrize(
    ("selectors", "reason", "error"),
    [((), "x", UsageError), (("NAB001",), "  ", UsageError), (("NAB999",), "x", SelectorError)],
)
def test_allow_needs_a_known_rule_and_a_reason(selectors, reason, error):
    with pytest.raises(error), allow(*selectors, reason=reason):
        pass


def test_a_baseline_accepts_what_is_known_and_names_what_is_gone(host, rule, tmp_path):
    known = rule.issue("m", where=Location(module="a", line=3))
    gone = rule.issue("m", where=Location(module="b"))
    path = tmp_path / "baseline.toml"
    Baseline.of([known, gone]).write(path)

    session = fake_session(host, settings={"baseline": str(path)})
    session.add(rule.issue("m", where=Location(module="a", line=99)))
    session.add(rule.issue("m", where=Location(module="c")))
    report = session.finish()

    assert [issue.where.module for issue in report.issues] == ["c"]
    assert [entry.source for entry in report.allowed] == ["baseline"]
    assert len(report.stale_baseline) == 1
    assert gone.fingerprint in report.stale_baseline[0]


def test_a_baseline_keeps_the_reasons_that_people_wrote(rule, tmp_path):
    path = tmp_path / "baseline.toml"
    Baseline.of([rule.issue("m")]).write(path)
    path.write_text(
        path.read_text().replace(
            "known when the baseline was written", 'phase "two"'.replace('"', '\\"')
        )
    )
    again = Baseline.of([rule.issue("m")], Baseline.read(path))
    assert [entry.reason for entry in again.entries.values()] == ['phase "two"']


@pytest.mark.parametrize("text", ["[[issue]]\nrule = 'X'", "issue = [3]", "[[issue"])
def test_a_damaged_baseline_is_a_clear_error(host, tmp_path, text):
    path = tmp_path / "baseline.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="baseline"):
        fake_session(host, settings={"baseline": str(path)})


def test_exit_code_and_raise_follow_fail_on(host, rule):
    quiet = fake_session(host)
    quiet.add(rule.issue("m"))
    strict = fake_session(host, settings={"fail-on": "medium"})
    strict.add(rule.issue("m"))

    assert (quiet.finish().exit_code, strict.finish().exit_code) == (0, 1)
    quiet.finish().raise_if_failed()
    with pytest.raises(CheckFailed, match="ACM101 acme-rule"):
        strict.finish().raise_if_failed()


def test_finishers_judge_the_whole_run(host, rule):
    class Late(Ceiling):
        def step(self, record):
            return ()

        def finish(self):
            yield self.rules[0].issue("at the end")

    session = fake_session(host, offers=["loss"])
    session.add_detector(Late(rule))
    assert [issue.message for issue in session.finish().issues] == ["at the end"]
    assert session.finish() is session.finish()


def test_sessions_may_be_left_in_any_order(host):
    one, other = fake_session(host), fake_session(host)
    one.__enter__()
    other.__enter__()

    one.__exit__(None, None, None)
    assert current_session() is other
    other.__exit__(None, None, None)
    assert current_session() is None
