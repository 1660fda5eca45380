"""Programs that become other ones between two epochs, and steps that cannot be executed alike."""

import itertools
import random

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.func import functional_call
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Sampler, TensorDataset

import nabla_replay
from nabla_replay.capturing.later import LaterCheckpoint, Moment
from nabla_replay.capturing.parts import Parts


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
                    rec._recorder.writer.flush()  # more checkpoints at once than the disk takes in
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


def test_steps_on_other_data_are_told_where_steps_are_recorded_by_hand(tmp_path):
    program = Program()
    loaders = program.loader, program.rows(), program.loader
    options = {"root": tmp_path, "budget": None, "checkpoint_every": 4, "loader": program.loader}
    with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
        for batch in itertools.chain(*loaders):
            rec.record_step(loss=program.step(batch))
    result = nabla_replay.replay(rec.run_path, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert any("has another loader" in one for one in result.cautions)
    assert {one.status for one in result.steps} == {"MATCH"}


def test_a_loader_with_other_batches_is_told(recorded):
    program = Program()
    larger = DataLoader(program.loader.dataset, batch_size=10, shuffle=True)
    run = recorded(program, [program.loader, larger], every=100)
    result = nabla_replay.replay(run, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert "batches of 10 instead of 4" in result.cautions[0]
    assert len(result.steps) == 5


def evaluate_then_freeze(program, epoch):
    program.model.eval()
    with torch.no_grad():
        program.model(torch.ones(2, 4))
    program.model.train()
    program.model[1].train(epoch != 1)


@pytest.mark.parametrize("start", [None, 7, 13])
def test_modules_are_in_the_modes_that_a_program_sets_between_epochs(recorded, start):
    program = Program()
    run = recorded(program, [program.loader] * 3, evaluate_then_freeze)
    result = nabla_replay.replay(run, build=Program, from_step=start)
    assert result.status == "MATCH", result.format()


def lower_dropout(program, epoch):
    program.model[1].p = 0.2 / (epoch + 1)


@pytest.mark.parametrize("start", [None, 7, 13])
def test_rates_are_those_that_a_program_sets_between_epochs(recorded, start):
    program = Program()
    run = recorded(program, [program.loader] * 3, lower_dropout)
    result = nabla_replay.replay(run, build=Program, from_step=start)
    assert result.status == "MATCH", result.format()


def test_a_program_that_is_built_with_another_rate_is_another_one(recorded):
    class Wetter(Program):
        def __init__(self):
            super().__init__()
            self.model[1].p = 0.3

    program = Program()
    run = recorded(program, [program.loader] * 2, evaluate_then_freeze)
    assert nabla_replay.replay(run, build=Wetter).divergence.step == 0


class Repeating(nn.Module):
    times = 1

    def forward(self, x):
        for _ in range(self.times):
            x = F.relu(x)
        return x * self.times


class Deepening(Program):
    """Has a number of its own that decides what it computes."""

    def __init__(self):
        super().__init__()
        self.model[1] = Repeating()


def test_what_else_a_program_sets_between_epochs_is_named_as_a_possible_cause(recorded):
    def deepen(program, epoch):
        program.model[1].times = 1 + epoch

    program = Deepening()
    run = recorded(program, [program.loader] * 2, deepen, every=100)
    result = nabla_replay.replay(run, build=Deepening)
    assert result.status == "UNVERIFIED", result.format()
    assert "step 5 differs, and is the first one of an epoch" in result.cautions[0]
    assert len(result.steps) == 5


def test_a_checkpoint_is_not_taken_while_other_weights_are_in_the_model():
    model = nn.Sequential(nn.Linear(2, 2))
    taken = []
    later = LaterCheckpoint(
        Parts(model=model),
        lambda: Moment(generators={}, loader=None),
        lambda *_: taken.append(model[0].weight),
    )
    later.put_off(3)
    functional_call(model, {"0.weight": torch.zeros(2, 2)}, (torch.ones(1, 2),))
    assert taken == []
    model(torch.ones(1, 2))
    assert taken == [model[0].weight]


class Harder(Program):
    """Its sampler takes more of the data as the program says so."""

    class Some(Sampler):
        share = 0.4

        def __iter__(self):
            return iter(torch.randperm(int(20 * self.share)).tolist())

        def __len__(self):
            return int(20 * self.share)

    def rows(self):
        data = TensorDataset(torch.randn(20, 4), torch.arange(20) % 2)
        return DataLoader(data, batch_size=4, sampler=self.Some())


@pytest.mark.parametrize("start", [None, 6])
def test_a_sampler_takes_as_much_as_a_program_sets_between_epochs(recorded, start):
    def harder(program, epoch):
        program.loader.sampler.share = 0.4 + 0.2 * epoch

    program = Harder()
    run = recorded(program, [program.loader] * 3, harder)
    result = nabla_replay.replay(run, build=Harder, from_step=start)
    assert result.status == "MATCH", result.format()


def prune(program, epoch):
    if not epoch:
        return
    with torch.no_grad():
        program.model[0].weight[0] = 0.0


def forget(program, epoch):
    if epoch:
        program.optimizer.state.clear()


@pytest.mark.parametrize("change", [prune, forget])
def test_weights_or_moments_that_are_changed_between_epochs_are_no_work_of_a_step(recorded, change):
    program = Program()
    run = recorded(program, [program.loader] * 2, change, every=7)
    result = nabla_replay.replay(run, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert "other weights, buffers or optimizer state" in result.cautions[0]
    assert [one.step for one in result.steps] == [0, 1, 2, 3, 4, 7, 8, 9]


def test_an_average_that_is_updated_between_epochs_is_not_compared_there(tmp_path):
    class Averaged(Program):
        def __init__(self):
            super().__init__()
            self.extra = {"average": AveragedModel(self.model)}

    program = Averaged()
    options = {"extra": program.extra, "root": tmp_path, "budget": None}
    with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
        for _ in range(3):
            for batch in program.loader:
                program.step(batch)
            program.extra["average"].update_parameters(program.model)
    result = nabla_replay.replay(rec.run_path, build=Averaged)
    assert result.status == "MATCH", result.format()
    assert "changed its extra state" in result.cautions[0]


def test_batches_that_a_loop_skips_are_skipped_again(tmp_path):
    program = Program()
    parts = {"root": tmp_path, "budget": None}
    with nabla_replay.capture(program.model, program.optimizer, **parts) as rec:
        for _ in range(2):
            for number, batch in enumerate(program.loader):
                if number in (1, 2):
                    continue
                program.step(batch)
    result = nabla_replay.replay(rec.run_path, build=Program)
    assert result.status == "MATCH", result.format()


class Fragile(Program):
    """Refuses some batches in the middle of its step."""

    def step(self, batch):
        self.model(batch[0])
        if batch[1].sum() == 3:
            raise ValueError("a batch of one kind")
        return super().step(batch)


def test_a_step_that_raised_and_was_gone_on_from_is_replayed(tmp_path):
    program = Fragile()
    refused = 0
    with nabla_replay.capture(program.model, program.optimizer, root=tmp_path, budget=None) as rec:
        for batch in itertools.chain.from_iterable(program.loader for _ in range(4)):
            try:
                program.step(batch)
            except ValueError:
                refused += 1
    assert refused >= 2
    result = nabla_replay.replay(rec.run_path, build=Fragile)
    assert result.status == "MATCH", result.format()


class Lazy(Program):
    """Its first layer is made by its first call."""

    def __init__(self):
        super().__init__()
        self.model[0] = nn.LazyLinear(8)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.05)


@pytest.mark.parametrize("start", [None, 7])
def test_layers_that_are_made_by_their_first_call_are_made_again(recorded, start):
    program = Lazy()
    run = recorded(program, [program.loader] * 2)
    result = nabla_replay.replay(run, build=Lazy, from_step=start)
    assert result.status == "MATCH", result.format()


class Searching:
    """Asks its model without gradients in each step, and keeps what it found."""

    def __init__(self):
        torch.manual_seed(0)
        random.seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05)
        self.found = []

    def step(self, number):
        self.found.append(torch.randn(4))
        chosen = random.sample(self.found, min(4, len(self.found)))
        with torch.no_grad():
            wanted = self.model(chosen[0]).flip(0)
        loss = F.mse_loss(self.model(chosen[-1]), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def test_calls_without_gradients_inside_a_step_are_no_evaluation(tmp_path):
    program = Searching()
    options = {"root": tmp_path, "budget": None, "checkpoint_every": 5}
    with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
        for number in range(20):
            program.step(number)
    result = nabla_replay.replay(rec.run_path, build=Searching, from_step=12)
    assert result.status == "MATCH", result.format()
    assert "from its beginning" in result.issues[0].message


def test_an_evaluation_on_other_data_is_recognised_where_steps_are_recorded_by_hand(tmp_path):
    program = Program()
    other = program.rows()
    options = {"root": tmp_path, "budget": None, "checkpoint_every": 4}
    with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
        for number, batch in enumerate(program.loader):
            rec.record_step(loss=program.step(batch))
            if number == 1:
                with torch.no_grad():
                    assert [program.model(x) for x, _ in other]
                    torch.rand(4000)  # more than is searched for
    result = nabla_replay.replay(rec.run_path, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert "an evaluation" in result.cautions[0]


def test_a_compiled_model_is_compiled_as_it_is_without_a_capture(tmp_path):
    counter = CompileCounter()
    program = Program()
    compiled = torch.compile(program.model, backend=counter)
    options = {"root": tmp_path, "checkpoint_every": 2}
    with nabla_replay.capture(compiled, program.optimizer, **options) as rec:
        for x, y in program.loader:
            loss = F.cross_entropy(compiled(x), y)
            program.optimizer.zero_grad()
            loss.backward()
            program.optimizer.step()
    assert counter.frame_count == 1
    result = nabla_replay.replay(rec.run_path, build=Program, from_step=3)
    assert result.status == "MATCH", result.format()


class Remembering(Program):
    """Learns from what it has seen since its process began."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def batches(self):
        """Has the name of a part, and is none."""
        return self.loader

    def step(self, batch):
        self.seen.append(batch[0])
        return super().step((self.seen[0] + self.seen[-1], batch[1]))


def test_a_segment_is_replayed_by_a_program_of_its_own(tmp_path):
    options = {"root": tmp_path, "budget": None, "checkpoint_every": 100}
    for _ in range(2):
        program = Remembering()
        with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
            for batch in program.loader:
                program.step(batch)
        options["resume"] = rec.run_path
    result = nabla_replay.replay(rec.run_path, build=Remembering)
    assert result.status == "MATCH", result.format()
    assert len(result.steps) == 10
