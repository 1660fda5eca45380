"""Who judges which record while a source repeats itself."""

import pytest

from nabla_core.host import PluginHost
from nabla_core.testing import fake_session, records


class Noting:
    def __init__(self, rule, **traits):
        self.rules = (rule,)
        self.seen = []
        vars(self).update(traits)

    def step(self, record):
        self.seen.append(record.step)
        if record.signals["loss"] > 1:
            yield self.rules[0].issue("too high", step=record.step)


@pytest.fixture
def session_of(write_plugin, rule_source):
    host = PluginHost([write_plugin("acme", rule_source())])

    def make(**traits):
        session = fake_session(host, offers=["loss"])
        detector = Noting(host.registry.get("ACM101"), **traits)
        session.add_detector(detector)
        return session, detector

    return make


def run(session, losses, calm):
    for record in records(loss=losses):
        session.calm = record.step in calm
        session.step(record)


def test_patient_detectors_are_not_asked_in_calm_steps(session_of):
    session, detector = session_of(patient=True)
    run(session, [0] * 6, calm={1, 2, 3})
    assert detector.seen == [0, 4, 5]
    assert session.last_step == 5


def test_deferrable_detectors_see_every_record_in_order_when_the_calm_ends(session_of):
    session, detector = session_of(deferrable=True)
    run(session, [0, 0, 2, 0, 0], calm={1, 2, 3})
    assert detector.seen == [0, 1, 2, 3, 4]
    assert [issue.step for issue in session.issues] == [2]


def test_what_was_put_off_is_judged_before_the_report(session_of):
    session, detector = session_of(deferrable=True)
    run(session, [0, 2, 0], calm={1, 2})
    assert detector.seen == [0]
    assert [issue.step for issue in session.finish().issues] == [1]
    assert detector.seen == [0, 1, 2]


def test_an_endless_calm_does_not_pile_up_records(session_of):
    session, detector = session_of(deferrable=True)
    run(session, [0] * 100, calm=set(range(100)))
    assert len(detector.seen) >= 100 - 64


def test_a_step_passes_only_where_nobody_needs_it(session_of):
    for traits, passes in (({}, False), ({"deferrable": True}, False), ({"patient": True}, True)):
        session, _ = session_of(**traits)
        session.calm = True
        assert session.passes(7) is passes
        assert session.last_step == (7 if passes else -1)


def test_a_deferring_detector_that_raises_is_retired_once(session_of):
    session, detector = session_of(deferrable=True)

    def broken(record):
        detector.seen.append(record.step)
        raise ZeroDivisionError

    detector.step = broken
    run(session, [0] * 5, calm={0, 1, 2, 3})
    assert detector.seen == [0]
    assert len(session.problems) == 1


def test_one_that_judges_many_at_once_is_given_what_was_put_off_in_one_call(session_of):
    calls = []

    def judge(waiting):
        calls.append([record.step for record in waiting])
        return [issue for record in waiting for issue in detector.step(record)]

    session, detector = session_of(deferrable=True, steps=judge)
    run(session, [0, 0, 2, 0, 0], calm={1, 2, 3})
    assert calls == [[1, 2, 3]]
    assert detector.seen == [0, 1, 2, 3, 4]
    assert [issue.step for issue in session.issues] == [2]
