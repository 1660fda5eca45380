"""Programs that become other ones between two epochs, and steps that cannot be executed alike."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import nabla_replay
from nabla_replay.capturing.later import LaterCheckpoint, Moment


class Program:
    """A classifier over a shuffled loader of five batches."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        self.optimizer = torch.optim.AdamW(self.trained(), 0.05)
        self.loader = self.rows()

    def trained(self):
        return self.model.parameters()

    def rows(self):
        data = TensorDataset(torch.randn(20, 4), torch.arange(20) % 2)
        return DataLoader(data, batch_size=4, shuffle=True)

    def step(self, batch):
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Frozen(Program):
    """Its first layer is frozen at first."""

    def __init__(self):
        super().__init__()
        self.model[0].requires_grad_(False)


class Growing(Program):
    """Its last layer is trained later."""

    def trained(self):
        return self.model[0].parameters()


class Counting(Program):
    """Counts its steps by itself, and adds parameters in its twelfth one."""

    def __init__(self):
        super().__init__()
        self.taken = 0

    def trained(self):
        return self.model[0].parameters()

    def step(self, batch):
        self.taken += 1
        if self.taken == 12:
            self.optimizer.add_param_group({"params": self.model[2].parameters()})
        return super().step(batch)


@pytest.fixture
def recorded(tmp_path):
    def run(program, passes, between=lambda program, epoch: None, every=3):
        parts = {"loader": program.loader, "budget": None, "checkpoint_every": every}
        with nabla_replay.capture(program.model, program.optimizer, root=tmp_path, **parts) as rec:
            for epoch, loader in enumerate(passes):
                between(program, epoch)
                for batch in loader:
                    program.step(batch)
        return rec.run_path

    return run


def unfreeze(program, epoch):
    program.model[0].requires_grad_(epoch >= 2)


@pytest.mark.parametrize("start", [None, 7, 13])
def test_layers_that_are_frozen_and_let_go_are_so_again(recorded, start):
    program = Frozen()
    run = recorded(program, [program.loader] * 3, unfreeze)
    result = nabla_replay.replay(run, build=Frozen, from_step=start)
    assert result.status == "MATCH", result.format()


def test_parameters_that_were_added_later_are_told(recorded):
    def add(program, epoch):
        if epoch == 2:
            program.optimizer.add_param_group({"params": program.model[2].parameters()})

    program = Growing()
    run = recorded(program, [program.loader] * 3, add)
    result = nabla_replay.replay(run, build=Growing)
    assert result.status == "UNVERIFIED", result.format()
    assert "parameter groups to 2" in result.cautions[0]
    assert len(result.steps) == 10


@pytest.mark.parametrize("start", [None, 8])
def test_a_counter_of_its_own_is_no_difference_of_the_program(recorded, start):
    program = Counting()
    run = recorded(program, [program.loader] * 3, every=7)
    result = nabla_replay.replay(run, build=Counting, from_step=start)
    assert result.status == "MATCH", result.format()
    assert len(result.steps) == (15 if start is None else 7)
    assert [one.rule for one in result.issues] == ([] if start is None else ["REP901"])


def test_what_follows_a_step_that_was_not_executed_is_not_compared(recorded):
    program = Program()
    other = program.rows()
    run = recorded(program, [program.loader, other, program.loader], every=4)
    result = nabla_replay.replay(run, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert "has another loader" in result.cautions[0]
    assert {one.status for one in result.steps} == {"MATCH"}
    assert [one.step for one in result.steps] == [0, 1, 2, 3, 4, 12, 13, 14]


def test_a_loader_with_other_batches_is_told(recorded):
    program = Program()
    larger = DataLoader(program.loader.dataset, batch_size=10, shuffle=True)
    run = recorded(program, [program.loader, larger], every=100)
    result = nabla_replay.replay(run, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert "batches of 10 instead of 4" in result.cautions[0]
    assert len(result.steps) == 5


def test_what_a_program_sets_between_epochs_is_named_as_a_possible_cause(recorded):
    def calm(program, epoch):
        program.model[1].p = 0.2 / (epoch + 1)

    program = Program()
    run = recorded(program, [program.loader] * 2, calm, every=100)
    result = nabla_replay.replay(run, build=Program)
    assert result.divergence.step == 5
    assert any("first step of an epoch" in one for one in result.cautions)


def test_a_checkpoint_is_not_taken_while_other_weights_are_in_the_model():
    model = nn.Sequential(nn.Linear(2, 2))
    taken = []
    later = LaterCheckpoint(
        model, lambda: Moment(generators={}, loader=None), lambda *_: taken.append(model[0].weight)
    )
    later.put_off(3)
    functional_call(model, {"0.weight": torch.zeros(2, 2)}, (torch.ones(1, 2),))
    assert taken == []
    model(torch.ones(1, 2))
    assert taken == [model[0].weight]
