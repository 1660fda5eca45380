"""A budget that leaves no room for a look at every step: most steps are recorded in brief."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import nabla_replay
from nabla_core.severity import Severity
from nabla_replay.inspecting.run import inspect_run
from nabla_replay.store.reader import RunReader

TIGHT = 1e-9  # no step takes long enough


class Program:
    """A classifier over a shuffled loader of ten batches."""

    rate = 0.05

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), self.rate, momentum=0.9)
        data = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
        self.loader = DataLoader(data, batch_size=4, shuffle=True)

    def step(self, batch):
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Hasty(Program):
    """Takes larger steps from its thirtieth one on."""

    taken = 0

    def step(self, batch):
        self.taken += 1
        self.optimizer.param_groups[0]["lr"] = 0.05 if self.taken < 30 else 0.06
        return super().step(batch)


@pytest.fixture
def captured(tmp_path):
    def run(epochs=5, *, by_hand=False, program=None, **options):
        program = program or Program()
        options = {"root": tmp_path, "budget": TIGHT, "checkpoint_every": 100, **options}
        with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
            for _ in range(epochs):
                for batch in program.loader:
                    loss = program.step(batch)
                    if by_hand:
                        rec.record_step(loss=loss, batch_indices=[7, 8], metrics={"accuracy": 0.5})
        return rec

    return run


def steps_of(rec):
    with RunReader.open(rec.run_path) as reader:
        return list(reader.steps(0))


@pytest.mark.parametrize("by_hand", [False, True])
def test_every_step_is_recorded_and_few_are_looked_at(captured, by_hand):
    steps = steps_of(captured(by_hand=by_hand))
    assert [one.step for one in steps] == list(range(50))
    looked = [one.step for one in steps if not one.is_brief]
    assert looked[:16] == list(range(16))
    assert len(looked) <= 24
    assert {20, 30, 40} <= set(looked)  # the first of an epoch, always
    brief = steps[29]
    assert brief.is_brief and brief.loss is not None
    assert brief.digests == {"loader": "2:10"}
    if by_hand:
        assert (brief.batch, brief.signals["accuracy"]) == ((7, 8), 0.5)


def test_without_a_budget_no_step_is_recorded_in_brief(captured):
    assert not any(one.is_brief for one in steps_of(captured(budget=None)))


def test_where_the_pace_changes_is_said_in_the_log_and_by_inspect(captured):
    rec = captured()
    lines = (rec.run_path / "steps.r0.jsonl").read_text().splitlines()
    notes = [json.loads(line)["d"] for line in lines if '"pace"' in line]
    assert notes[-1]["body"]["every"] == 16
    looked = sum(not one.is_brief for one in steps_of(rec))
    assert dict(inspect_run(rec.run_path).facts)["fingerprints"].startswith(f"of {looked} steps")


@pytest.mark.parametrize("start", [None, 25])
def test_steps_in_brief_are_replayed_and_the_result_says_so(captured, start):
    result = nabla_replay.replay(captured().run_path, build=Program, from_step=start)
    assert result.status == "MATCH", result.format()
    brief = sum(one.is_brief for one in result.steps)
    assert f"({brief} of them recorded in brief" in result.headline()


def test_a_difference_is_seen_in_its_step(captured):
    result = nabla_replay.replay(captured().run_path, build=Hasty)
    assert result.status == "DIVERGENCE"
    assert (result.divergence.step, result.divergence.component) == (29, "parameter")


def test_a_program_is_found_again_after_a_step_in_brief(captured):
    program = Program()
    rec = captured(program=program)
    again = nabla_replay.capture(program.model, program.optimizer, resume=rec.run_path)
    with again:
        pass
    assert steps_of(rec)[-1].is_brief
    assert again.resumed.step == 49
    assert [one.severity for one in again.resumed.issues] == [Severity.INFO]
    assert "whether the rng are those" in again.resumed.issues[0].message


@pytest.mark.parametrize("saves", ["within", "afterwards"])
def test_a_resume_without_the_optimizer_is_told_where_the_step_was_in_brief(captured, saves):
    program, saved = Program(), []
    if saves == "within":
        step = program.step

        def saving(batch):
            loss = step(batch)
            if len(saved) < 28:
                saved.append(copy.deepcopy(program.model.state_dict()))
                program.optimizer.state_dict()  # as a checkpoint would
            return loss

        program.step = saving
    rec = captured(program=program)
    forgetful = Program()
    forgetful.model.load_state_dict(saved[-1] if saved else program.model.state_dict())
    with nabla_replay.capture(forgetful.model, forgetful.optimizer, resume=rec.run_path) as again:
        pass
    loud = [one for one in again.resumed.issues if one.severity > Severity.INFO]
    assert steps_of(rec)[again.resumed.step].is_brief
    assert [one.rule for one in loud] == ["REP105"]
    assert "optimizer is in another state" in loud[0].message
    assert len(program.optimizer._optimizer_state_dict_pre_hooks) == 0
