"""A loop that repeats itself is looked at less, and what deviates is still found at its step."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard
from nabla_guard.loop.calm import Calm
from nabla_guard.loop.signals import joint_norm

LATE = 25


class Program:
    """A healthy classifier that makes a mistake from step 25 on."""

    def __init__(self, mistake=None):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.mistake = mistake

    def run(self, steps=40):
        for step in range(steps):
            wrong = self.mistake if step >= LATE else None
            x = torch.randn(8, 6)
            if wrong == "eval":
                self.model.eval()
            if wrong != "not cleared":
                self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), x[:, :3].argmax(-1))
            (loss * math.nan if wrong == "nan" else loss).backward()
            self.spoil(wrong)
            self.optimizer.step()

    def spoil(self, wrong):
        spoiler = SPOILERS.get(wrong)
        if spoiler is not None:
            spoiler(self)


def set_to_none(program):
    for parameter in program.model.parameters():
        parameter.grad = None


def zeroed_in_place(program):
    for parameter in program.model.parameters():
        parameter.grad.zero_()


def one_set_to_none(program):
    program.model[3].bias.grad = None


def one_infinite(program):
    program.model[0].weight.grad[0, 0] = math.inf


def backward_again(program):
    program.model(torch.randn(8, 6)).square().mean().backward()


def rate_of_zero(program):
    program.optimizer.param_groups[0]["lr"] = 0.0


def written_by_hand(program):
    with torch.no_grad():
        program.model[3].bias.fill_(math.nan)


SPOILERS = {
    "cleared late": lambda program: program.optimizer.zero_grad(),
    "module cleared late": lambda program: program.model.zero_grad(),
    "set to None": set_to_none,
    "zeroed in place": zeroed_in_place,
    "one set to None": one_set_to_none,
    "one infinite": one_infinite,
    "again": backward_again,
    "rate": rate_of_zero,
    "written by hand": written_by_hand,
}


def watched(mistake):
    with guard() as monitor:
        Program(mistake).run()
    report = monitor.report()
    assert not report.problems
    return [(issue.rule, issue.step, issue.message) for issue in report.issues]


@pytest.mark.parametrize(
    ("mistake", "rule"),
    [
        ("not cleared", "AUD102"),
        ("cleared late", "AUD101"),
        ("module cleared late", "AUD101"),
        ("set to None", "AUD101"),
        ("zeroed in place", "AUD101"),
        ("eval", "AUD301"),
        ("rate", "AUD303"),
        ("nan", "NUM103"),
        ("one infinite", "NUM102"),
        ("one set to None", None),
        ("again", None),
        ("written by hand", "NUM104"),
        (None, None),
    ],
)
def test_a_late_mistake_gets_the_same_verdict_at_the_same_step(mistake, rule, monkeypatch):
    calm = watched(mistake)
    monkeypatch.setattr(Calm, "_begin", lambda self, index: None)
    attentive = watched(mistake)

    assert calm == attentive
    if rule is None or rule.startswith("AUD"):
        assert [found[0] for found in calm] == ([rule] if rule else [])
    else:
        assert calm and calm[0][0].startswith("NUM")


def test_most_steps_of_a_steady_loop_are_calm(monkeypatch):
    states = []
    with guard() as monitor:
        live = monitor.session.source
        monkeypatch.setattr(Program, "spoil", lambda self, wrong: states.append(live.calm.on))
        Program().run(64)
    assert not any(states[:6])
    assert sum(states[6:]) >= 0.9 * len(states[6:])


@pytest.mark.parametrize("change", ["requires_grad", "new optimizer", "new group", "other model"])
def test_calm_loops_survive_changes(change, monkeypatch):
    program = Program()
    extra = nn.Linear(3, 3)

    def spoil(self, wrong):
        spoil.steps += 1
        if spoil.steps != LATE:
            return
        if change == "requires_grad":
            self.model[0].requires_grad_(False)
        elif change == "new optimizer":
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        elif change == "new group":
            self.model.append(extra)
            self.optimizer.add_param_group({"params": extra.parameters()})
        else:
            self.model(torch.randn(2, 6)).sum().backward()

    spoil.steps = 0
    monkeypatch.setattr(Program, "spoil", spoil)
    with guard() as monitor:
        program.run()
    report = monitor.report()
    assert report.issues == () and not report.problems


def test_a_loop_that_is_entered_again_goes_on_calmly():
    program = Program()
    monitor = guard(program.model, optimizer=program.optimizer)
    for _ in range(3):
        with monitor:
            program.run(12)
            assert monitor.session.source.calm.on
        program.run(5)  # unwatched
    with monitor:
        program.run(2)
        assert monitor.session.source.calm.on
    assert monitor.report().issues == ()


def test_alternating_optimizers_are_calm_and_healthy():
    torch.manual_seed(0)
    body, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    first, second = (torch.optim.SGD(part.parameters(), 0.01) for part in (body, critic))
    with guard() as monitor:
        for _ in range(40):
            second.zero_grad()
            critic(body(torch.randn(8, 4)).detach()).square().mean().backward()
            second.step()
            first.zero_grad()
            (-critic(body(torch.randn(8, 4))).mean()).backward()
            first.step()
        assert monitor.session.source.calm.on
    assert monitor.report().issues == ()


def test_modules_carry_nothing_of_ours():
    program = Program()
    before = pickle.dumps(program.model)
    keys = set(vars(program.model))
    with guard():
        program.run(1)
        assert set(vars(program.model)) == keys
        twin = copy.deepcopy(program.model)
        twin.load_state_dict(pickle.loads(before).state_dict())
        assert len(pickle.dumps(twin)) == len(before)


def test_a_module_that_raises_is_left_as_a_root():
    model = nn.Linear(3, 1)
    with guard() as monitor:
        for _ in range(3):
            with pytest.raises(RuntimeError):
                model(torch.ones(2, 2))
        model(torch.ones(2, 3)).sum().backward()
    assert [facts.name for facts in monitor.session.source.facts.modules] == ["Linear"]


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e6])
def test_the_joint_norm_is_that_of_the_concatenation(factor):
    torch.manual_seed(0)
    tensors = [factor * torch.randn(shape) for shape in ((3, 4), (5,), (2, 2, 2))]
    expected = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))
    assert joint_norm(tensors) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30, math.inf, math.nan])
def test_the_joint_norm_says_nothing_where_squares_may_be_wrong(value):
    assert joint_norm([torch.ones(2) * value, torch.zeros(3)]) is None
