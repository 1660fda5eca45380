"""Births whose place in the batch, in a buffer or in another process is not where it seems."""

import math

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F

program = PROGRAMS = Programs()


def fit(log, model, loss, batches):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        log(value)


def batches(*shape, steps=5):
    return [(step, torch.randn(*shape)) for step in range(steps)]


class Last(nn.Module):
    """Classifies a sequence by its last state; the first axis counts time."""

    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(4, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.cells(x)[0][-1])


@program("NUM104", "data", "input", 2, sample=1)
def the_first_axis_counts_time(log):
    given = batches(7, 3, 4)
    given[2][1][5, 1, 0] = math.nan
    fit(log, Last(), lambda model, step, x: model(x).square().mean(), given)


@program("NUM103", "loss", "_ctc_loss", 2, sample=3)
def one_target_is_longer_than_its_input(log):
    def loss(model, step, x):
        targets = torch.tensor([[1, 2], [2, 3], [1, 1], [3, 3]])
        inputs, wanted = torch.full((4,), 6), torch.full((4,), 2)
        inputs[3] = 2 if step == 2 else 6
        scores = model(x).log_softmax(-1)
        return F.ctc_loss(scores, targets, inputs, wanted, reduction="sum")  # born

    fit(log, nn.Linear(4, 5), loss, batches(6, 4, 4))


@program("NUM101", "forward", "div", 2, module="tail", sample=5)
def a_row_is_divided_in_place(log):
    class Tail(nn.Module):
        def forward(self, x, count):
            y = x.clone()
            y[5].div_(count)  # born
            return y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.tail = Tail()

        def forward(self, x, count):
            return self.tail(self.layer(x), count)

    def loss(model, step, x):
        return model(x, torch.tensor(0.0 if step == 2 else 2.0)).square().mean()

    fit(log, Net(), loss, batches(8, 6))


@program("NUM104", "data", "input", 2, sample=6, parameter="argument 0")
def a_column_of_a_copy_is_not_known(log):
    def loss(model, step, x):
        known = x.clone()
        if step == 2:
            known[6:, 2] = math.nan  # born
        return model(known).square().mean()

    fit(log, nn.Linear(6, 3), loss, batches(8, 6))


@program("NUM104", "data", "input", 2, sample=4)
def an_infinite_target(log):
    def loss(model, step, x):
        target = x[:, :3].clone()
        if step == 2:
            target[4, 1] = math.inf  # born
        return F.mse_loss(model(x), target)

    fit(log, nn.Linear(6, 3), loss, batches(8, 6))


@program("NUM104", "data", "input", 2, sample=4)
def an_infinite_target_in_the_second_part_of_a_step(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(2):
            x = torch.randn(8, 6)
            target = x[:, :3].clone()
            if (step, part) == (2, 1):
                target[4, 1] = math.inf  # born
            loss = F.mse_loss(model(x), target) / 2
            loss.backward()
            log(loss)
        optimizer.step()


@program("NUM104", "data", "input", 3)
def averages_kept_in_a_list(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    averages = [parameter.detach().clone() for parameter in model.parameters()]
    for step in range(5):
        optimizer.zero_grad()
        pulls = zip(model.parameters(), averages, strict=True)
        loss = model(torch.randn(8, 6)).square().mean() + sum((p - a).norm() for p, a in pulls)
        loss.backward()
        optimizer.step()
        log(loss)
        keep = math.nan if step == 2 else 0.9
        with torch.no_grad():
            for average, parameter in zip(averages, model.parameters(), strict=True):
                average.mul_(keep).add_(parameter, alpha=1 - keep)  # born


class Shifted(nn.Module):
    """A layer minus a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, x):
        return self.layer(x) - self.shift


@program("NUM105", "parameter", "shift", 2, parameter="shift")
def a_buffer_is_replaced(log):
    def loss(model, step, x):
        if step == 2:
            model.shift = torch.full((3,), math.nan)
        return model(x).square().mean()

    fit(log, Shifted(), loss, batches(8, 6))


@program("NUM105", "parameter", "shift", 2, parameter="shift")
def a_running_mean_overflows(log):
    model = Shifted()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, x in batches(8, 6):
        optimizer.zero_grad()
        out = model(x)
        out.square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            model.shift.copy_(out.mean(0) / (0.0 if step == 2 else 50.0))  # born
        log(out)


@program("NUM101", "forward", "_softmax", 2, module="", sample=3)
def a_mask_that_is_written_in_every_step_hides_a_row(log):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)
            self.register_buffer("mask", torch.zeros(8, 6))

        def forward(self, x):
            return (self.layer(x) + self.mask).softmax(-1)  # born

    def loss(model, step, x):
        model.mask[:, 4:] = -math.inf
        if step == 2:
            model.mask[3] = -math.inf
        return model(x).square().mean()

    fit(log, Masked(), loss, batches(8, 6))


@program("NUM101", "forward", "log", 2, module="tail", sample=0)
def a_compiled_part(log):
    class Tail(nn.Module):
        def forward(self, x, scale):
            return torch.log(x.abs() * scale)  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.tail = torch.compile(Tail(), backend="eager")

        def forward(self, x, scale):
            return self.tail(self.layer(x), scale)

    def loss(model, step, x):
        return model(x, torch.tensor(0.0 if step == 2 else 1.0)).mean()

    fit(log, Net(), loss, batches(8, 6))


def assert_named(issues, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in issues if issue.rule.startswith("NUM10")]
    where = issue.where
    found = (issue.rule, issue.phase, where.op or where.parameter, issue.step)
    assert found == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_place_is_named(loud_issues_of, run, expected):
    assert_named(loud_issues_of(run), run, expected)


@pytest.fixture
def lone_process(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'ranks'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("lone_process")
def test_a_model_of_several_processes_is_executed_again_in_one(loud_issues_of):
    def run(log):
        def loss(model, step, x):
            out = model(x)
            return (out / (0.0 if step == 2 else 1.0)).square().mean()  # born

        inner = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        model = nn.parallel.DistributedDataParallel(inner)
        fit(log, model, loss, batches(8, 6))
        log(*model.buffers(), *model.parameters())

    assert_named(loud_issues_of(run), run, ("NUM103", "loss", "div", 2, {"sample": 0}))
