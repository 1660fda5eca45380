"""A recorded number is scanned once: all bad episodes, exactly."""

import math
import random

import pytest

import nabla_replay
from nabla_core.errors import UsageError
from nabla_replay.bisecting.episodes import bad_episodes
from nabla_replay.store.entries import StepEntry


def entries(losses, first=0):
    return [StepEntry(step=first + index, loss=loss) for index, loss in enumerate(losses)]


def test_every_episode_of_300_random_runs_is_found_exactly(reached):
    draw = random.Random(0)
    predicate = nabla_replay.metric_greater_than("loss", 10.0)
    for _ in range(300):
        bad = [False] * 400
        for _ in range(draw.randint(1, 4)):
            begin = draw.randint(0, 399)
            for step in range(begin, min(begin + draw.randint(1, 80), 400)):
                bad[step] = True
        losses = [draw.choice([50.0, math.nan, math.inf]) if one else 1.0 for one in bad]

        found = bad_episodes(entries(losses), predicate)

        covered = [step for one in found for step in range(one.first, one.last + 1)]
        assert covered == [step for step, one in enumerate(bad) if one]
        assert all(one.last + 1 < other.first for one, other in zip(found, found[1:], strict=False))
        assert all(one.last_good in (None, one.first - 1) for one in found)
        reached("random runs bisected exactly")


@pytest.mark.parametrize(
    ("predicate", "bad", "good"),
    [
        (nabla_replay.metric_greater_than("loss", 10.0), 10.1, 10.0),
        (nabla_replay.metric_less_than("loss", 0.5), 0.4, 0.5),
        (nabla_replay.metric_nonfinite("loss"), math.inf, 1e300),
    ],
)
def test_limits_from_both_sides(predicate, bad, good):
    assert predicate.is_bad(bad)
    assert predicate.is_bad(math.nan)
    assert not predicate.is_bad(good)


@pytest.fixture
def run(store):
    def make(losses, **others):
        with store.create() as writer:
            for index, loss in enumerate(losses):
                writer.append(
                    StepEntry(step=index, loss=loss, batch=(index,), signals=others.get(index, {}))
                )
        return writer.folder

    return make


def test_a_spike_and_a_collapse_are_two_episodes(run):
    losses = [51.0 if 203 <= step < 260 or step >= 520 else 1.0 for step in range(600)]
    result = nabla_replay.bisect(run(losses), metric="loss", greater_than=10)
    assert result.first_bad_step == 203
    assert [(one.first, one.last) for one in result.episodes] == [(203, 259), (520, 599)]
    assert [issue.rule for issue in result.issues] == ["REP301", "REP302"]
    assert not result.is_monotone
    assert not result.passed


def test_one_episode_to_the_end_is_monotone_and_says_what_changed(run):
    result = nabla_replay.bisect(run([1.0, 1.0, math.nan, math.nan]), metric="loss")
    assert (result.last_good_step, result.first_bad_step) == (1, 2)
    assert result.is_monotone
    assert {one.name for one in result.changes} == {"loss", "batch"}
    assert "batch" in result.issues[0].message


def test_a_good_run_passes(run):
    result = nabla_replay.bisect(run([1.0, 2.0]), metric="loss", greater_than=2)
    assert result.passed
    assert result.first_bad_step is None


def test_a_run_that_is_bad_from_the_start_has_no_good_step(run):
    result = nabla_replay.bisect(run([5.0, 5.0]), metric="loss", greater_than=2)
    assert (result.first_bad_step, result.last_good_step) == (0, None)


def test_a_number_that_was_not_recorded_is_no_verdict(run):
    result = nabla_replay.bisect(run([1.0]), metric="los")
    assert [issue.rule for issue in result.issues] == ["REP303"]
    assert "loss" in result.issues[0].message
    assert not result.passed


def test_a_learning_rate_that_was_recorded_on_change_is_known_at_every_step(store):
    with store.create() as writer:
        for step in range(6):
            signals = {0: {"lr": 0.1}, 4: {"lr": 10.0}}.get(step, {})
            writer.append(StepEntry(step=step, loss=1.0 + (step >= 4), signals=signals))
    result = nabla_replay.bisect(writer.folder, metric="loss", greater_than=1.5)
    assert [str(one) for one in result.changes] == ["loss: 1 -> 2", "lr: 0.1 -> 10"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs a predicate"),
        ({"metric": "loss", "greater_than": 1, "less_than": 2}, "not both"),
        ({"metric": "loss", "predicate": print}, "not both"),
        ({"predicate": 3}, "function"),
        ({"metrc": "loss"}, "unknown option"),
    ],
)
def test_wrong_calls_are_told(run, arguments, words):
    with pytest.raises(UsageError, match=words):
        nabla_replay.bisect(run([1.0]), **arguments)
