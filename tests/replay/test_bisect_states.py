"""A question about the state is asked at every checkpoint, and one interval is walked."""

import pytest
import torch
from torch import nn

import nabla_replay

EVERY, STEPS = 10, 47


class Program:
    """Its weight counts the steps, so that any set of steps can be called bad."""

    def __init__(self, drift=0.0):
        self.model = nn.Linear(1, 1, bias=False)
        self.drift = drift
        with torch.no_grad():
            self.model.weight.zero_()

    def step(self, number):
        with torch.no_grad():
            self.model.weight.add_(1.0 + self.drift)
        return float(self.model.weight)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    program = Program()
    root = tmp_path_factory.mktemp("runs")
    with nabla_replay.capture(program.model, root=root, checkpoint_every=EVERY) as rec:
        for index in range(1, STEPS + 1):
            rec.record_step(step=index, loss=program.step(index), batch_indices=[index])
            rec._recorder.writer.flush()  # more checkpoints at once than the disk takes in
    return rec.run_path


def asks(bad):
    def is_bad(view):
        return bad(int(view.model.weight))

    return is_bad


@pytest.mark.parametrize("first", [1, 2, 10, 11, 20, 29, 30, 40, 41, 46, 47])
def test_the_first_bad_step_is_found_within_one_interval(run, first):
    result = nabla_replay.bisect(run, asks(lambda count: count >= first), build=Program)
    assert result.first_bad_step == first
    assert result.interval == (first - 1 or None, first)
    assert result.replayed_steps <= EVERY
    assert [issue.rule for issue in result.issues] == ["REP301"]


def test_a_good_run_passes_and_its_tail_is_looked_at(run):
    result = nabla_replay.bisect(run, asks(lambda count: False), build=Program)
    assert result.passed
    assert result.replayed_steps == STEPS % EVERY


def test_what_goes_good_again_is_an_interval_and_no_step(run):
    bad = asks(lambda count: 15 <= count < 25 or count >= 38)
    result = nabla_replay.bisect(run, bad, build=Program)
    assert result.first_bad_step is None
    assert result.interval == (14, 15)
    assert result.flips == (20, 30, 40)
    assert [issue.rule for issue in result.issues] == ["REP302"]
    assert not result.is_monotone


def test_a_state_that_is_bad_from_the_start_is_not_decided(run):
    result = nabla_replay.bisect(run, asks(lambda count: True), build=Program)
    assert [issue.rule for issue in result.issues] == ["REP303"]
    assert not result.is_conclusive


def test_without_a_program_only_the_interval_is_known(run):
    result = nabla_replay.bisect(run, lambda view: view.state["model"]["weight"] >= 25)
    assert result.first_bad_step is None
    assert result.interval == (20, 30)
    assert [issue.rule for issue in result.issues] == ["REP303"]


def test_without_a_program_the_tail_is_not_called_good(run):
    result = nabla_replay.bisect(run, lambda view: view.state["model"]["weight"] >= 45)
    assert not result.passed
    assert "no checkpoint is bad" in result.issues[0].message


def test_a_replay_that_diverges_decides_nothing(run):
    result = nabla_replay.bisect(
        run, asks(lambda count: count >= 25), build=lambda: Program(drift=1e-3)
    )
    assert [issue.rule for issue in result.issues] == ["REP303"]
    assert result.first_bad_step is None


def test_recorded_numbers_can_be_asked_as_well(run):
    result = nabla_replay.bisect(run, lambda view: view.metrics.get("loss", 0) > 22, build=Program)
    assert result.first_bad_step == 23
