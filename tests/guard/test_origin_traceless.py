"""Executing a step again leaves no trace, and can be followed by a stop or a skip."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import _len_torch_function_stack

from nabla_guard import guard
from nabla_guard.origin.policy import NonFiniteStop
from nabla_guard.taps.instrument import INSTRUMENT


class Tricky(nn.Module):
    """Draws numbers, keeps statistics and Python state, prints, and writes to what it is given."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.norm = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(0.4)
        self.last = nn.Linear(12, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0
        self.history = []

    def forward(self, x):
        self.calls += 1
        self.history.append(self.calls)
        self.seen += 1
        print("forward", self.calls)
        if random.random() < 2:
            hidden = self.drop(self.norm(self.first(x)))
        self.first.bias.data.mul_(0.99)
        return self.last(hidden) + torch.log(x[:, :1])


def state_of(model, optimizer):
    tensors = [*model.state_dict().values()]
    tensors += [parameter.grad for parameter in model.parameters()]
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    versions = [parameter._version for parameter in model.parameters()]
    python = (model.calls, list(model.history), model.training, random.getstate(), versions)
    return [tensor.clone() for tensor in tensors], python, torch.get_rng_state()


def train(watched):
    torch.manual_seed(3)
    random.seed(3)
    model = Tricky()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    states = []

    def loop():
        for step in range(6):
            x = torch.rand(8, 6) + 0.1
            if step == 3:
                x[2, 0] = 0.0
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), torch.randint(0, 3, (8,)))
            loss.backward()
            kept = [parameter.grad for parameter in model.parameters()]
            optimizer.step()
            assert all(p.grad is g for p, g in zip(model.parameters(), kept, strict=True))
            states.append((loss.detach(), *state_of(model, optimizer)))

    if watched:
        with guard(mode="standard") as monitor:
            loop()
        assert [issue.where.op for issue in monitor.issues if issue.rule == "NUM101"] == ["log"]
    else:
        loop()
    return states


def test_a_re_execution_changes_nothing(capsys):
    plain = train(watched=False)
    said = capsys.readouterr().out
    watched = train(watched=True)
    assert capsys.readouterr().out == said
    for (loss, tensors, python, rng), again in zip(plain, watched, strict=True):
        assert torch.equal(loss, again[0]) or bool(loss.isnan() and again[0].isnan())
        for one, other in zip(tensors, again[1], strict=True):
            assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
        assert python == again[2]
        assert torch.equal(rng, again[3])


def test_hooks_of_the_user_run_but_those_after_accumulation_do_not(loop):
    counted = []
    parameter = loop.model[0].weight
    parameter.register_post_accumulate_grad_hook(lambda p: counted.append(1))
    with guard(mode="standard"):
        for step, (x, y) in enumerate(loop.batches(4)):
            loop.optimizer.zero_grad()
            scale = torch.tensor(float("inf") if step == 2 else 1.0)
            (loop.loss(x, y) * scale).backward()
            loop.optimizer.step()
    assert len(counted) == 4
    assert parameter._post_accumulate_grad_hooks


def test_the_mode_stack_is_empty_afterwards_and_user_modes_survive(loop):
    with guard(mode="standard"):
        loop.run(3)
        with torch.device("cpu"):
            loop.run(2)
            inside = _len_torch_function_stack()
        loop.run(2)
    assert inside >= 1
    assert _len_torch_function_stack() == 0
    assert not INSTRUMENT.keeper.enabled


def test_a_stop_comes_before_the_optimizer_acts(loop):
    def program():
        for step, (x, y) in enumerate(loop.batches(6)):
            loop.optimizer.zero_grad()
            (loop.loss(x, y) * (float("nan") if step == 2 else 1.0)).backward()
            loop.optimizer.step()

    with guard(on_nonfinite="stop") as monitor, pytest.raises(NonFiniteStop, match="step 2"):
        program()
    assert all(bool(torch.isfinite(p).all()) for p in loop.model.parameters())
    assert [issue.rule for issue in monitor.issues] == ["NUM103"]
    with guard(mode="standard") as after:
        loop.run(3)
    assert after.steps == 3


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_a_skipped_step_leaves_weights_and_state_as_they_are(make_loop, name):
    loop = make_loop()
    loop.optimizer = getattr(torch.optim, name)(loop.model.parameters(), 1e-2)
    kept = []

    def program():
        for step, (x, y) in enumerate(loop.batches(5)):
            loop.optimizer.zero_grad()
            (loop.loss(x, y) * (float("nan") if step == 2 else 1.0)).backward()
            before = [p.detach().clone() for p in loop.model.parameters()]
            loop.optimizer.step()
            assert all(p.grad is not None for p in loop.model.parameters())
            kept.append(
                all(torch.equal(a, b) for a, b in zip(before, loop.model.parameters(), strict=True))
            )

    with guard(on_nonfinite="skip"):
        program()
    assert kept == [False, False, True, False, False]


def test_a_batch_changed_in_place_is_said_to_be_undecided(loop, issues_of):
    def program():
        for step, (x, y) in enumerate(loop.batches(4)):
            loop.optimizer.zero_grad()
            loss = loop.loss(x, y) * (float("inf") if step == 2 else 1.0)
            loss.backward()
            x.zero_()
            loop.optimizer.step()

    (issue,) = [issue for issue in issues_of(program) if issue.rule.startswith("NUM10")]
    assert (issue.rule, issue.step, issue.where.op) == ("NUM103", 2, "mul")
    assert "changed in place" in issue.evidence["not_the_same"]
    assert issue.confidence < 1.0


def test_a_generator_handed_to_the_model_is_said_to_be_undecided(issues_of):
    class Stream(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, parts):
            return sum(self.net(part) for part in parts).log()

    model = Stream()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 6) for _ in range(2)).sum().backward()
            optimizer.step()

    (issue,) = [issue for issue in issues_of(program) if issue.rule.startswith("NUM10")]
    assert "generator" in issue.evidence["not_decided"]


class Remembering(nn.Module):
    """Keeps what it computed last in plain containers, in place of what was there before."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
        self.latest, self.trail = {}, []

    def forward(self, x):
        hidden = self.inner(x)
        self.latest["hidden"] = hidden.detach()
        self.trail[:] = [*self.trail[-2:], hidden.detach()]
        return hidden.log()


def test_tensors_kept_by_the_model_are_the_very_ones_of_the_first_execution(issues_of):
    model = Remembering()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    kept = []

    def program():
        for _ in range(3):
            loss = model(torch.randn(8, 4)).sum()
            kept[:] = [model.latest["hidden"], *model.trail]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert all(map(lambda a, b: a is b, kept, [model.latest["hidden"], *model.trail]))

    (issue,) = [issue for issue in issues_of(program) if issue.rule.startswith("NUM10")]
    assert (issue.rule, issue.where.op) == ("NUM101", "log")
    assert "not_the_same" not in issue.evidence
