"""NUM101 to NUM105: each has a birth, a healthy twin, and what only looks like one."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard


@pytest.fixture
def issues_of(issues_of):
    """Only what is said about NaN and Inf: other rules have tests of their own."""

    def run(program, **options):
        found = issues_of(program, **options)
        return tuple(issue for issue in found if issue.rule.startswith("NUM10"))

    return run


def rules(issues):
    return [issue.rule for issue in issues if issue.rule.startswith("NUM10")]


class Gate(nn.Module):
    """A softmax by hand, or the stable one."""

    def __init__(self, stable):
        super().__init__()
        self.inner = nn.Linear(6, 4)
        self.outer = nn.Linear(4, 3)
        self.stable = stable

    def forward(self, x):
        scores = self.inner(x)
        if self.stable:
            return self.outer(scores.softmax(-1))
        weights = scores.exp()
        return self.outer(weights / weights.sum(-1, keepdim=True))


@pytest.mark.parametrize(("stable", "found"), [(False, ["NUM101"]), (True, [])])
def test_a_forward_overflow_is_named_at_its_step(make_loop, issues_of, stable, found):
    loop = make_loop(Gate(stable))

    def program():
        for step, (x, y) in enumerate(loop.batches(6)):
            loop.optimizer.zero_grad()
            loop.loss(x * (3000.0 if step == 3 else 1.0), y).backward()
            loop.optimizer.step()

    issues = issues_of(program)
    assert rules(issues) == found
    assert [(issue.step, issue.phase) for issue in issues] == [(3, "forward")][: len(found)]


@pytest.mark.parametrize(("floor", "found"), [(0.0, ["NUM102"]), (1e-6, [])])
def test_a_derivative_at_the_edge_is_named_although_the_loss_is_finite(issues_of, floor, found):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        torch.manual_seed(0)
        for step in range(5):
            left, right = torch.randn(4, 4), torch.randn(4, 4)
            if step == 2:
                right = left.clone()
            optimizer.zero_grad()
            squares = (model(left) - model(right)).square().sum(-1)
            squares.clamp(min=floor).sqrt().mean().backward()
            optimizer.step()

    issues = issues_of(program)
    assert rules(issues) == found
    assert [(issue.step, issue.phase) for issue in issues] == [(2, "backward")][: len(found)]


@pytest.mark.parametrize(("empty", "found"), [(True, ["NUM103"]), (False, [])])
def test_a_loss_over_no_targets_is_named_once_although_the_run_recovers(
    loop, issues_of, empty, found
):
    def program():
        for step, (x, y) in enumerate(loop.batches(8)):
            loop.optimizer.zero_grad()
            ignored = torch.full_like(y, -100) if empty and step in (3, 4) else y
            loop.loss(x, ignored).backward()
            loop.optimizer.step()

    issues = issues_of(program)
    assert rules(issues) == found
    births = [(i.step, i.phase) for i in issues if i.rule.startswith("NUM")]
    assert births == [(3, "loss")][: len(found)]


@pytest.mark.parametrize("keyword", [False, True])
def test_a_faulty_sample_is_named(make_loop, issues_of, keyword):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, values):
            return self.net(values)

    loop = make_loop(Named())

    def program():
        for step, (x, y) in enumerate(loop.batches(5)):
            if step == 2:
                x[7, 3] = math.nan
            loop.optimizer.zero_grad()
            out = loop.model(values=x) if keyword else loop.model(x)
            F.cross_entropy(out, y).backward()
            loop.optimizer.step()

    (issue,) = issues_of(program)
    assert (issue.rule, issue.step, issue.phase) == ("NUM104", 2, "data")
    assert issue.where.sample == 7
    assert "[7, 3]" in issue.message


def test_padding_that_is_always_nan_and_masked_is_no_fault(make_loop, issues_of):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x):
            return self.net(torch.nan_to_num(x))

    loop = make_loop(Masked())

    def program():
        for step, (x, y) in enumerate(loop.batches(8)):
            x[:, 5] = math.nan
            loop.optimizer.zero_grad()
            ignored = torch.full_like(y, -100) if step == 5 else y
            loop.loss(x, ignored).backward()
            loop.optimizer.step()

    assert rules(issues_of(program)) == ["NUM103"]


def half_adam(eps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(8, 4), nn.Flatten(), nn.Linear(8, 2)).half()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, eps=eps)
    indices = torch.randint(0, 4, (16, 2))
    return model, optimizer, indices


@pytest.mark.parametrize(("eps", "found"), [(1e-8, ["NUM105"]), (1e-4, [])])
@pytest.mark.parametrize("steps", [1, 4])
def test_arithmetic_of_the_optimizer_is_named_at_the_step_that_did_it(issues_of, eps, found, steps):
    model, optimizer, indices = half_adam(eps)

    def program():
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(indices).float(), indices[:, 0] % 2).backward()
            optimizer.step()

    issues = issues_of(program)
    assert rules(issues) == found
    assert [(issue.step, issue.phase) for issue in issues] == [(0, "optimizer")][: len(found)]


@pytest.mark.parametrize(("rate", "found"), [(1e30, ["NUM105"]), (1e-2, [])])
def test_a_learning_rate_that_blows_up_the_weights_is_named_not_the_forward(
    make_loop, issues_of, rate, found
):
    loop = make_loop()
    loop.optimizer = torch.optim.SGD(loop.model.parameters(), 1e-2)

    def blow_up(step):
        loop.optimizer.param_groups[0]["lr"] = rate if step == 2 else 1e-2

    issues = issues_of(lambda: loop.run(6, blow_up))
    assert rules(issues) == found
    assert [issue.step for issue in issues] == [2][: len(found)]


def test_a_parameter_written_by_hand_is_not_blamed_on_the_optimizer(loop, issues_of):
    def program():
        loop.run(3)
        with torch.no_grad():
            loop.model[0].weight[0, 0] = math.nan
        loop.run(1)

    (issue,) = issues_of(program)
    assert (issue.rule, issue.phase) == ("NUM105", "parameter")


def test_a_parameter_that_was_bad_from_the_start_says_so(loop, issues_of):
    with torch.no_grad():
        loop.model[0].weight[0, 0] = math.nan
    (issue,) = issues_of(lambda: loop.run(2))
    assert (issue.rule, issue.step, issue.phase) == ("NUM105", 0, "parameter")
    assert "when training began" in issue.message


def test_consequences_are_not_reported_again(make_loop, issues_of):
    loop = make_loop(Gate(stable=False))

    def program():
        for x, y in loop.batches(6):
            loop.optimizer.zero_grad()
            loop.loss(x * 5000.0, y).backward()
            loop.optimizer.step()

    assert rules(issues_of(program)) == ["NUM101"]


def test_steps_that_a_scaler_skips_are_no_fault(make_loop, issues_of):
    loop = make_loop()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)

    def program():
        for x, y in loop.batches(12):
            loop.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                out = loop.model(x)
            scaler.scale(F.cross_entropy(out.float(), y)).backward()
            scaler.step(loop.optimizer)
            scaler.update()

    assert rules(issues_of(program)) == []


def test_masks_of_minus_infinity_are_no_fault(make_loop, issues_of):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 4)

        def forward(self, x):
            scores = self.net(x)
            return scores.masked_fill(torch.arange(4) == 3, -math.inf)

    loop = make_loop(Masked())
    assert rules(issues_of(loop.run)) == []


def test_an_overflowing_norm_of_finite_numbers_is_no_fault(issues_of):
    weight = nn.Parameter(torch.full((8,), 1e25))
    optimizer = torch.optim.SGD([weight], 1e-3)

    def program():
        for _ in range(3):
            optimizer.zero_grad()
            (weight * 1e-25).sum().backward()
            optimizer.step()

    assert not torch.isfinite(weight.detach().norm())
    assert rules(issues_of(program)) == []


def test_sparse_and_half_and_double_gradients_are_measured():
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, sparse=True)
    parts = [nn.Linear(4, 4).half(), nn.Linear(4, 4).double()]
    optimizer = torch.optim.SGD([p for m in (table, *parts) for p in m.parameters()], 0.1)
    records = []

    def program():
        for _ in range(4):
            optimizer.zero_grad()
            hidden = table(torch.randint(0, 10, (5,)))
            loss = sum(m(hidden.to(m.weight.dtype)).double().square().mean() for m in parts)
            loss.backward()
            optimizer.step()

    with guard() as monitor:
        judge = monitor.session.step
        monitor.session.step = lambda record: records.append(record) or judge(record)
        program()
    assert rules(monitor.report().issues) == []
    assert all(math.isfinite(record.signals["grad_norm"]) for record in records)
    expected = math.hypot(*(float(p.grad.to_dense().double().norm()) for p in table.parameters()))
    assert records[-1].signals["grad_norm"] > expected > 0


def test_a_closure_is_judged_after_its_step(issues_of):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=3)
    x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    def program():
        for _ in range(5):
            optimizer.step(closure)

    assert rules(issues_of(program)) == []
