"""Mode light keeps each step too: the first bad one is executed again and its origin named."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_core.errors import UsageError
from nabla_guard import guard
from nabla_guard.loop.calm import Calm
from nabla_guard.rules import NON_FINITE_FORWARD
from nabla_guard.taps.instrument import INSTRUMENT


class Scaled(nn.Module):
    """Divides by the spread of each row: nothing is left of a constant row."""

    def __init__(self, eps):
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.eps = eps

    def forward(self, x):
        x = x / (x.std(-1, keepdim=True) + self.eps)  # born
        return self.inner(x)


def train(model, loss_fn, steps=40, bad_step=30):
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        x = torch.randn(8, 6)
        y = x[:, :3].argmax(-1)
        if step == bad_step:
            x[5] = 0.0
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()


def line_of(owner):
    lines, first = inspect.getsourcelines(owner)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# born"))


@pytest.mark.parametrize("loss_fn", [nn.CrossEntropyLoss(), F.cross_entropy], ids=["module", "op"])
def test_light_names_the_origin(loss_fn, issues_of):
    model = Scaled(0.0)
    issues = [i for i in issues_of(lambda: train(model, loss_fn), mode="light") if i.severity >= 20]
    assert [issue.rule for issue in issues] == ["NUM101"]
    where = issues[0].where
    assert (issues[0].step, issues[0].phase, where.op, where.line) == (
        30,
        "forward",
        "div",
        line_of(Scaled.forward),
    )
    assert where.sample == 5


@pytest.mark.parametrize("mode", ["light", "standard", "deep"])
def test_without_explanation_the_verdict_stays_and_no_step_is_kept(mode, issues_of):
    seen = []

    class Looking(Scaled):
        def forward(self, x):
            seen.append(INSTRUMENT.keeper.enabled)
            return super().forward(x)

    wanted = {"mode": mode, "explain": False}
    issues = issues_of(lambda: train(Looking(0.0), F.cross_entropy), **wanted)
    loud = [issue for issue in issues if issue.severity >= 20]
    assert [(issue.rule, issue.step, issue.phase) for issue in loud] == [("NUM101", 30, "forward")]
    assert len(seen) == 40  # not executed again
    assert not any(seen)


def test_without_explanation_nothing_is_compared_with_float64():
    with guard(explain=False) as monitor:
        train(Scaled(1e-3), F.cross_entropy, steps=3)
    with pytest.raises(UsageError, match="explain=False"):
        monitor.shadow()
    reasons = {entry.rule: entry.reason for entry in monitor.report().not_evaluated}
    assert "shadow" in reasons["NUM121"]


def test_light_is_quiet_on_the_healthy_twin(issues_of):
    model = Scaled(1e-5)
    issues = issues_of(lambda: train(model, F.cross_entropy), mode="light")
    assert not [issue for issue in issues if issue.severity >= 20]


def test_the_step_before_a_failed_backward_is_forgotten(issues_of):
    """A backward pass that raises must not leave the recorder on or off for good."""

    def program():
        model, loss_fn = Scaled(0.0), nn.CrossEntropyLoss()
        loss = loss_fn(model(torch.randn(8, 6)), torch.zeros(8, dtype=torch.long))
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.zeros(()).backward()
        train(model, loss_fn)

    issues = [issue for issue in issues_of(program, mode="light") if issue.rule == "NUM101"]
    assert [(issue.where.op, issue.where.sample) for issue in issues] == [("div", 5)]
    assert torch._C._len_torch_function_stack() == 0


def test_backward_is_put_back():
    before = torch.Tensor.backward
    with guard(mode="light"):
        assert torch.Tensor.backward is not before
    assert torch.Tensor.backward is before


class Curious:
    """A detector of a third party that looks at the modules in every step."""

    def __init__(self, facts):
        self.facts = facts
        self.rules = (NON_FINITE_FORWARD,)
        self.seen = []

    def step(self, record):
        self.seen.append([facts.trained_calls for facts in self.facts.modules])
        return ()


@pytest.mark.parametrize("left", [0, 2])
def test_facts_of_modules_are_the_same_in_quick_steps(monkeypatch, left):
    """Also beside optimizers of earlier runs that are still there."""
    others = [torch.optim.SGD(nn.Linear(6, 3).parameters(), 0.1) for _ in range(left)]

    def seen():
        model = Scaled(1e-5)
        with guard(model, mode="light") as monitor:
            live = monitor.session.source
            curious = Curious(live.facts)
            monitor.session.add_detector(curious)
            train(model, F.cross_entropy, steps=120)
            assert live.calm.quick is not None or not live.calm.on
        return curious.seen

    quick = seen()
    monkeypatch.setattr(Calm, "_begin", lambda self, index: None)
    assert quick == seen() == [[1]] * 120
    assert len(others) == left


def test_a_loop_that_has_not_changed_for_long_is_looked_at_less():
    model = Scaled(1e-5)
    with guard(model, mode="light") as monitor:
        live = monitor.session.source
        full = []
        close = live.closing.close
        live.closing.close = lambda *args: (full.append(live.index), close(*args))
        train(model, F.cross_entropy, steps=400, bad_step=-1)
    early = [step for step in full if 150 <= step < 250]
    late = [step for step in full if 300 < step < 400]
    assert len(late) < len(early)
    assert max(b - a for a, b in zip(full[20:], full[21:], strict=False)) <= 32
