"""A resumed run is compared with the one it goes on with."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import nabla_replay
from nabla_core.errors import InputError
from nabla_replay.capturing.generators import generator_state, restore_generators
from nabla_replay.store.reader import RunReader


class Program:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3)

    def step(self):
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(4, 4)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss

    def state(self):
        parts = ("model", "optimizer", "scheduler")
        saved = {name: getattr(self, name).state_dict() for name in parts}
        return nabla_copy({**saved, "generators": generator_state()})

    def restore(self, state, *, without=()):
        for name in ("model", "optimizer", "scheduler"):
            if name not in without:
                getattr(self, name).load_state_dict(state[name])
        if "generators" not in without:
            restore_generators(state["generators"])

    def capture(self, root, **options):
        return nabla_replay.capture(
            self.model, self.optimizer, scheduler=self.scheduler, root=root, **options
        )


def nabla_copy(state):
    import copy

    return copy.deepcopy(state)


@pytest.fixture(params=[None, 0.02, "seen"], ids=["everything", "rotating", "seen"])
def interrupted(tmp_path, request):
    program = Program()
    seen = request.param == "seen"  # before the schedule's step
    with program.capture(tmp_path, budget=None if seen else request.param) as rec:
        for index in range(8):
            loss = program.step()
            if not seen:
                rec.record_step(step=index, loss=loss)
            if index == 5:
                kept = program.state()
    return rec.run_path, kept


def resumed(path, kept, **options):
    torch.manual_seed(77)
    random.seed(7)
    np.random.seed(7)
    program = Program()
    program.restore(kept, **options)
    with program.capture(path.parent, resume=path) as rec:
        for index in range(6, 10):
            rec.record_step(step=index, loss=program.step())
    return rec


def test_a_resume_that_restores_everything_is_the_same_run(interrupted):
    rec = resumed(*interrupted)
    assert rec.issues == ()
    assert rec.resumed.step == 5
    with RunReader.open(interrupted[0]) as reader:
        assert len(reader.log(0).segments) == 2


@pytest.mark.parametrize("lost", ["optimizer", "scheduler", "generators"])
def test_what_was_not_restored_is_named(interrupted, lost, capsys):
    rec = resumed(*interrupted, without=(lost,))
    named = {issue.evidence["component"] for issue in rec.issues}
    assert {issue.rule for issue in rec.issues} == {"REP105"}
    assert {"generators": "rng"}.get(lost, lost) in named
    assert rec.resumed.step == 5


def test_other_parameters_are_no_step_of_the_run(interrupted, capsys):
    rec = resumed(*interrupted, without=("model",))
    assert rec.resumed.step is None
    assert "none of the 8 recorded steps" in rec.issues[0].message


def test_a_run_that_is_not_there_cannot_be_resumed(tmp_path):
    with pytest.raises(InputError), Program().capture(tmp_path, resume=tmp_path / "gone"):
        pass


def test_both_segments_are_replayed(interrupted):
    path, kept = interrupted
    resumed(path, kept)

    def build():
        program = Program()
        return program

    result = nabla_replay.replay(path, build=build)

    assert result.passed, result.format()
    assert [one.step for one in result.steps] == [0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9]
