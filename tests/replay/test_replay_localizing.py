"""A planted fault is traced to its module and direction."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla_replay
from nabla_replay.capturing.context import Capture
from nabla_replay.fingerprints.call_record import ModuleCall, StepTrace
from nabla_replay.replaying.localizing import locate


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.second, self.drop = nn.Linear(width, width), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.second(F.gelu(self.drop(self.first(self.norm(x))))))


class Net(nn.Module):
    """A residual net that reuses a dropout, with code of its own between its modules."""

    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block(8) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 20)

    def forward(self, x):
        x = self.embed(x) * 2
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Program:
    make = Net

    def __init__(self, plant=None):
        torch.manual_seed(0)
        self.model = self.make()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        if plant is not None:
            plant(self.model)

    def step(self, number):
        tokens = torch.randint(0, 20, (4, 6))
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Deep(Program):
    make = staticmethod(lambda: Net(depth=6))


class Images(Program):
    """A convolutional net."""

    @staticmethod
    def make():
        parts = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        parts += (nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6))
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5))

    def step(self, number):
        images, kinds = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(images), kinds)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class SlightlyWrong(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, grad):
        return grad * 1.0000001


def forward_fault(module):
    module.register_forward_hook(lambda module, args, output: output * (1 + 2**-20))


def backward_fault(module):
    module.register_forward_hook(lambda module, args, output: SlightlyWrong.apply(output))


def weight_fault(module):
    weight = next(module.parameters())
    again = module.forward

    def forward(x):
        with torch.no_grad():
            weight.view(-1)[::3] = torch.nextafter(weight.view(-1)[::3], torch.tensor(9e9))
        return again(x)

    module.forward = forward


def leaves(model):
    return [path for path, part in model.named_modules() if path and not list(part.children())]


LEAVES = leaves(Net())
FAULTS = {forward_fault: "forward", backward_fault: "backward", weight_fault: "forward"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    program = Program()
    root = tmp_path_factory.mktemp("runs")
    with nabla_replay.capture(program.model, program.optimizer, root=root, budget=0.02) as rec:
        for index in range(3):
            rec.record_step(step=index, loss=program.step(index))
    return rec.run_path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("path", LEAVES)
def test_the_module_and_the_direction_are_named(run, path, fault):
    def plant(model):
        fault(model.get_submodule(path))

    if fault is weight_fault and not list(Net().get_submodule(path).parameters()):
        return
    result = nabla_replay.replay(run, build=lambda: Program(plant), localize=True)

    found = result.divergence
    assert found is not None
    assert found.step == 0
    assert (found.module, found.direction) == (path, FAULTS[fault])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Deep, Images])
def test_each_of_104_planted_faults_is_traced(kind, tmp_path, reached):
    program = kind()
    with nabla_replay.capture(program.model, program.optimizer, root=tmp_path) as rec:
        rec.record_step(step=0, loss=program.step(0))
    missed = []
    for path in leaves(kind.make()):
        for fault, direction in FAULTS.items():
            if fault is weight_fault and not list(kind.make().get_submodule(path).parameters()):
                continue
            build = lambda path=path, fault=fault: kind(lambda m: fault(m.get_submodule(path)))  # noqa: E731
            found = nabla_replay.replay(rec.run_path, build=build, localize=True).divergence
            hit = found is not None and (found.module, found.direction) == (path, direction)
            reached("planted faults traced to module and direction", hit)
            missed += [] if hit else [(path, fault.__name__)]
    assert missed == []


def test_a_gradient_that_no_looked_at_part_covers_is_seen_in_the_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(Capture, "_whole_s", staticmethod(lambda found: 1e-3))  # in eight parts
    program = Program()
    with nabla_replay.capture(program.model, program.optimizer, root=tmp_path) as rec:
        for index in range(3):
            rec.record_step(step=index, loss=program.step(index))

    def replayed(fault):
        return nabla_replay.replay(
            rec.run_path, build=lambda: Program(lambda model: fault(model.embed)), localize=True
        )

    assert replayed(lambda module: None).status == "MATCH"
    found = replayed(backward_fault).divergence
    assert (found.step, found.module, found.direction) == (0, "embed", "backward")


def test_code_between_two_modules_is_the_module_around_them(run):
    def plant(model):
        block = model.blocks[1]
        block.forward = lambda x: x * (1 + 2**-20) + Block.forward(block, x) - x

    found = nabla_replay.replay(run, build=lambda: Program(plant), localize=True).divergence
    assert (found.module, found.direction) == ("blocks.1", "forward")


def test_other_data_is_not_blamed_on_a_module(run):
    def build():
        program = Program()
        step = program.step

        def other(number):
            torch.randint(0, 20, (1,))
            return step(number)

        program.step = other
        return program

    found = nabla_replay.replay(run, build=build, localize=True).divergence
    assert found.direction == "input"


def test_a_step_without_recorded_modules_is_traced_by_a_reference(run):
    def late(model):
        calls = []

        def hook(module, args, output):
            calls.append(1)
            return output * (1 + 2**-20) if len(calls) > 1 else output

        model.blocks[0].second.register_forward_hook(hook)

    def build():
        return Program(late)

    found = nabla_replay.replay(run, build=build, localize=True, reference=Program).divergence
    assert found.step == 1
    assert found.module in ("blocks.0.second", None)


def test_equal_traces_have_no_place():
    call = ModuleCall(1, 2, 3, 4)
    trace = StepTrace(calls={("a", 1): call}, backward=(("a", 1),), gradients={"a": 5})
    assert locate(trace, trace) is None


@pytest.mark.parametrize(
    ("other", "direction"),
    [
        (ModuleCall(9, 9, 3, 4), "input"),
        (ModuleCall(1, 9, 3, 4), "forward"),
        (ModuleCall(1, 2, 9, 9), "loss"),
        (ModuleCall(1, 2, 3, 9), "backward"),
    ],
)
def test_directions(other, direction):
    key = ("a", 1)
    there = StepTrace(calls={key: ModuleCall(1, 2, 3, 4)}, backward=(key,))
    here = StepTrace(calls={key: other}, backward=(key,))
    assert locate(there, here).direction == direction


def test_another_call_is_named():
    there = StepTrace(calls={("a", 1): ModuleCall(), ("b", 1): ModuleCall()})
    here = StepTrace(calls={("a", 1): ModuleCall(), ("a", 2): ModuleCall()})
    found = locate(there, here)
    assert (found.module, found.direction) == ("b", "calls")


def test_a_module_that_handed_its_input_through_is_found():
    outer, inner = ("block", 1), ("block.shortcut", 1)
    calls = {inner: ModuleCall(1, 1), outer: ModuleCall(1, 2, 3, 4)}
    there = StepTrace(calls=calls, backward=(outer,))
    changed = {inner: ModuleCall(1, 1, 3, 7), outer: ModuleCall(1, 2, 3, 9)}
    here = StepTrace(calls=changed, backward=(inner, outer))
    assert locate(there, here).module == "block.shortcut"
    assert locate(there, there) is None
