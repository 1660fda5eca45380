"""Deep mode: the range of every op, without a change to the training."""

import gc
import itertools
import math

import pytest
import torch
import torch._dynamo.testing
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from nabla_guard import guard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).exp()))


class Train:
    def __init__(self, make=Net):
        torch.manual_seed(0)
        self.model = make()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.losses = []

    def step(self):
        x = torch.randn(8, 6)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), x[:, :3].argmax(-1))
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())

    def run(self, steps=8):
        for _ in range(steps):
            self.step()
        return [*self.losses, *self.model.state_dict().values(), torch.get_rng_state()]


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(F.gelu(self.norm(self.conv(x[:, None]))).flatten(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.first, self.head = nn.Linear(1, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.inner(self.first(x[..., None])).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cell(x[..., None])[0][:, -1])


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.part, self.last = nn.Linear(6, 8), Net(), nn.Linear(3, 3)
        self.part.first = nn.Linear(8, 8)

    def forward(self, x):
        return self.last(checkpoint(self.part, self.first(x), use_reentrant=False))


@pytest.mark.parametrize("mode", ["light", "standard", "deep"])
@pytest.mark.parametrize("make", [Net, Convolutional, Attention, Recurrent, Checkpointed])
def test_every_mode_leaves_the_training_bit_identical(make, mode):
    plain = Train(make).run()
    with guard(mode=mode) as monitor:
        watched = Train(make).run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert not monitor.session.problems
    assert torch._C._len_torch_dispatch_stack() == 0


def operations(program, **options):
    with guard(mode="deep", shadow="off", **options) as monitor:
        program()
    return {(found.op, found.module, found.part): found for found in monitor.operations}


def test_each_op_is_known_with_its_module_part_and_range():
    train = Train()
    found = operations(lambda: train.run(3))
    exp = found["aten::exp", "Net", "forward"]
    assert exp.calls == 3
    assert 0 < exp.low < 1 < exp.high < math.exp(3)
    assert exp.place.file.endswith("test_deep.py")
    assert found["aten::addmm", "first", "forward"].calls == 3
    assert found["aten::_log_softmax", "", "loss"].high <= 0
    assert found["aten::mm", "", "backward"].calls > 3


def test_optimizers_and_data_are_not_part_of_it():
    names = {op for op, _, _ in operations(lambda: Train().run(3))}
    assert not names & {"aten::addcdiv_", "aten::lerp_", "aten::randn", "aten::argmax"}


def test_recomputation_is_not_counted():
    found = operations(lambda: Train(Checkpointed).run(2))
    assert found["aten::exp", "part", "forward"].calls == 2
    assert ("aten::exp", "", "backward") not in found


def test_layers_have_the_same_ranges_as_in_standard_mode():
    def layers(mode):
        records = []
        with guard(mode=mode, shadow="off") as monitor:
            monitor._loop.wanted |= {"layers"}
            monitor.session.step = records.append
            Train().run(4)
        return [(record.layout, record.layers) for record in records]

    assert layers("deep") == layers("standard")


def test_chosen_ops_are_events_call_by_call():
    with guard(mode="deep", operations=["aten::ex*", "_log_softmax"], shadow="off") as monitor:
        Train().run(3)
    names = [event.name for event in monitor.events if event.kind == "operation"]
    assert names.count("aten::exp") == 3
    assert set(names) == {"aten::exp", "aten::_log_softmax"}
    assert {found.op for found in monitor.operations} == set(names)


def test_chosen_modules_bound_what_is_measured():
    found = operations(lambda: Train().run(2), modules=["last"], exclude=["Dropout"])
    assert {module for _, module, part in found if part == "forward"} == {"last"}


class Far(nn.Module):
    factor = 1e3

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 3)

    def forward(self, x):
        return (self.first(x) * self.factor) / self.factor


@pytest.mark.parametrize(("factor", "count"), [(1e2, 0), (1e6, 3)])
def test_extreme_values_are_events_and_bounded(factor, count):
    def make():
        model = Far()
        model.factor = factor
        return model

    with guard(mode="deep", shadow="off", extreme_value_threshold=1e4) as monitor:
        Train(make).run(10)
    events = [event for event in monitor.events if event.kind == "operation"]
    assert len(events) == count
    assert {(event.name, event.where.module) for event in events} <= {("aten::mul", "Far")}


def test_events_are_bounded():
    with guard(mode="deep", operations=["*"], max_events=50, shadow="off") as monitor:
        Train().run(5)
    assert len(monitor.events) == 50
    assert monitor.session.dropped["events"] > 0


def test_nothing_grows():
    train = Train()
    with guard(mode="deep", shadow="off"):
        train.run(100)  # what is kept of the latest 64 steps is there by then
        counts = [living(train)]
        for _ in range(2):
            for _ in range(100):
                train.step()
            counts.append(living(train))
    grown = [after - before for before, after in itertools.pairwise(counts)]
    assert min(grown) < 200, grown  # what is left of earlier tests may change once


def living(train):
    train.losses.clear()
    gc.collect()
    return len(gc.get_objects())


class InnerNorm(nn.Module):
    """Overflows between two ops of one module: no output of any module shows it."""

    def __init__(self):
        super().__init__()
        self.scale, self.first, self.last = 1.0, nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.first(x) * self.scale
        return self.last(x * torch.rsqrt(x.square().mean(-1, keepdim=True)))


@pytest.mark.parametrize(("scale", "expected"), [(1e18, []), (1e25, [("NUM101", 4, "pow")])])
def test_an_overflow_that_no_module_shows_is_found(scale, expected):
    train = Train(InnerNorm)
    with guard(mode="deep", shadow="off") as monitor:
        for step in range(7):
            train.model.scale = scale if step >= 4 else 1.0
            train.step()
    found = [issue for issue in monitor.issues if issue.rule == "NUM101"]
    assert [(issue.rule, issue.step, issue.where.op) for issue in found] == expected


def test_a_mode_of_the_program_around_the_loop_is_respected():
    class Count(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names = (*self.names, func._schema.name)
            return func(*args, **(kwargs or {}))

    with guard(mode="deep", shadow="off"), Count() as count:
        Train().run(2)
    assert "aten::exp" in count.names
    assert torch._C._len_torch_dispatch_stack() == 0


def test_an_exception_in_a_module_leaves_no_mode_behind():
    train = Train()

    def fail(*_):
        raise KeyError("mine")

    train.model.norm.register_forward_hook(fail)
    with pytest.raises(KeyError, match="mine"), guard(mode="deep"):
        train.step()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_an_exception_in_backward_leaves_no_mode_behind():
    class Fail(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("mine")

    train = Train()
    with guard(mode="deep", shadow="off"):
        with pytest.raises(KeyError, match="mine"):
            Fail.apply(train.model(torch.randn(2, 6))).sum().backward()
        train.run(2)
        assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("mode", ["light", "standard", "deep"])
def test_a_compiled_model_trains_the_same(mode):
    def run():
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(3):
            x = torch.randn(8, 6)
            optimizer.zero_grad()
            loss = F.mse_loss(compiled(x), x[:, :3])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    plain = run()
    with guard(mode=mode):
        watched = run()
    torch._dynamo.reset()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_a_compiled_function_inside_a_model_runs_right():
    torch._dynamo.reset()
    function = torch.compile(lambda x: ((x + 1).abs() + 1).log(), backend="aot_eager")

    class WithFunction(Net):
        def forward(self, x):
            return super().forward(function(x))

    plain = Train(WithFunction).run(3)
    with guard(mode="deep", shadow="off"):
        watched = Train(WithFunction).run(3)
    torch._dynamo.reset()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


@pytest.mark.parametrize("mode", ["light", "standard", "deep"])
def test_a_compiled_loss_runs_right_and_is_compiled_as_often_as_without(mode):
    def run():
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounter()
        function = torch.compile(lambda a, b: ((a - b).abs() + 1).log().mean(), backend=counter)
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(8):
            x = torch.randn(8, 6)
            optimizer.zero_grad()
            loss = function(model(x), x[:, :3])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, counter.frame_count

    plain, _ = run()
    with guard(mode=mode):
        watched, frames = run()
    torch._dynamo.reset()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert frames <= 3  # once for each stack of function modes
