"""However a capture or a replay ends, what it replaced in torch is as it was before."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils.data import DataLoader

import nabla_replay
from nabla_replay.fingerprints.module_trace import ModuleTrace
from nabla_replay.replaying.window import Window


@pytest.fixture(autouse=True)
def nothing_left_behind():
    def held():
        hooks = (module_hooks._global_forward_pre_hooks, module_hooks._global_forward_hooks)
        return (
            nn.Module.__call__,
            nn.Module.load_state_dict,
            DataLoader.__iter__,
            torch.Tensor.backward,
            *(OrderedDict(found) for found in hooks),
        )

    before = held()
    yield
    assert held() == before


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(3, 3), nn.Linear(3, 1)
        self.fails = False

    def forward(self, x):
        x = self.inner(x)
        if self.fails:
            raise RuntimeError("out of memory")
        return self.head(x)


class Program:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)

    def step(self, number=0):
        loss = self.model(torch.randn(4, 3)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def captured(program, tmp_path, **options):
    return nabla_replay.capture(
        program.model, program.optimizer, root=tmp_path, budget=None, **options
    )


def test_an_exception_in_a_traced_step_leaves_nothing(tmp_path):
    program = Program()
    with (
        pytest.raises(RuntimeError, match="out of memory"),
        captured(program, tmp_path, checkpoint_every=1),
    ):
        program.step()
        program.model.fails = True
        program.step()


def test_a_step_that_was_tried_twice_has_no_trace_and_is_replayed_exactly(tmp_path):
    program = Program()
    with captured(program, tmp_path, checkpoint_every=2) as rec:
        program.step()
        program.step()
        program.model.fails = True
        with pytest.raises(RuntimeError):
            program.model(torch.ones(4, 3))  # draws nothing: the step itself is as it was
        program.model.fails = False
        program.step()
        program.step()

    found = nabla_replay.replay(rec.run_path, build=Program, localize=True)

    assert found.status == "MATCH", found.format()


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_replay_that_localizes_leaves_nothing(tmp_path, by_hand):
    program = Program()
    with captured(program, tmp_path, checkpoint_every=2) as rec:
        for number in range(4):
            loss = program.step()
            if by_hand:
                rec.record_step(step=number, loss=loss)

    found = nabla_replay.replay(rec.run_path, build=Program, localize=True)

    assert found.status == "MATCH"


def test_a_replay_whose_step_raises_leaves_nothing(tmp_path):
    program = Program()
    with captured(program, tmp_path, checkpoint_every=2) as rec:
        for _ in range(4):
            program.step()

    def build():
        broken = Program()
        broken.model.fails = True
        return broken

    with pytest.raises(RuntimeError, match="out of memory"):
        nabla_replay.replay(rec.run_path, build=build, localize=True)


def test_state_that_cannot_be_stored_at_the_end_leaves_nothing_and_does_not_raise(tmp_path):
    program = Program()
    with captured(program, tmp_path, checkpoint_every=2) as rec:
        for _ in range(4):
            program.step()
        program.optimizer.param_groups[0]["odd"] = object()  # the waiting checkpoint meets it

    assert [issue.rule for issue in rec.issues] == ["REP204"]


def test_a_record_that_is_refused_leaves_nothing(tmp_path):
    program = Program()
    with captured(program, tmp_path, checkpoint_every=1) as rec:
        for number in range(3):
            rec.record_step(step=number, loss="high" if number == 1 else program.step())
    assert [issue.rule for issue in rec.issues] == ["REP204"]


def test_a_step_without_end_stops_its_trace(monkeypatch):
    monkeypatch.setattr("nabla_replay.fingerprints.module_trace._MAX_CALLS", 10)
    model = Net()
    trace = ModuleTrace(model, "crc32")
    trace.start()

    for _ in range(10):
        model(torch.ones(1, 3))

    assert trace.spoilt
    assert not trace.stop().calls


def test_a_window_that_is_given_up_leaves_nothing(tmp_path, monkeypatch):
    program = Program()
    with captured(program, tmp_path, checkpoint_every=2) as rec:
        for _ in range(4):
            program.step()
    monkeypatch.setattr(Window, "seen", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        nabla_replay.replay(rec.run_path, build=Program, localize=True)
