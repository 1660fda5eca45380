"""Probes of a traced loop against the loop's own numbers, and what runs between two looks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.severity import Severity

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0)).double()
Y = torch.randint(3, (64,), generator=torch.Generator().manual_seed(1))


def fresh():
    torch.manual_seed(0)
    layers = nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3)
    return nn.Sequential(*layers).double()


def inner(first, second):
    return float(sum((a * b).sum() for a, b in zip(first, second, strict=True)))


class Loop:
    """Ten steps that keep what the probes must find."""

    def __init__(self, *, scale=1.0, clip=0.0, halves=1, hook=False):
        self.scale, self.clip, self.halves = scale, clip, halves
        self.model = fresh()
        if hook:
            self.model[0].weight.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.3, momentum=0.9)
        self.kept = []

    def run(self, steps=10):
        parameters = list(self.model.parameters())
        for _ in range(steps):
            self.optimizer.zero_grad()
            rows, state = torch.randint(64, (16,)), None
            for _ in range(self.halves):
                state = state if state is not None else torch.get_rng_state()
                loss = F.cross_entropy(self.model(X[rows]), Y[rows]) * self.scale
                true = torch.autograd.grad(loss, parameters, retain_graph=True)
                first = true if not self.kept or len(self.kept[-1]) == 4 else first  # noqa: F821
                loss.backward()
            for parameter in parameters:
                parameter.grad /= self.scale * self.halves
            if self.clip:
                nn.utils.clip_grad_norm_(parameters, self.clip)
            before = [p.detach().clone() for p in parameters]
            self.optimizer.step()
            step = [p.detach() - old for p, old in zip(parameters, before, strict=True)]
            self.kept.append((first, step, float(loss.detach()), before))


CASES = {
    "plain": {},
    "clipped": {"clip": 0.05},
    "scaled loss": {"scale": 1024.0},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("what", [("step",), ("samples", "step", "noise", "signal")])
def test_slopes_are_those_of_the_gradient_before_clipping_and_unscaling(name, what):
    loop = Loop(**CASES[name])
    with nabla.trace.attach(loop.model, loop.optimizer, every=4, what=what) as trace:
        loop.run()

    assert trace.failed == {}
    assert [probe.step for probe in trace.own_batch] == [0, 1, 2, 3, 4, 5, 8]
    for probe in trace.own_batch:
        grads, step, loss, _ = loop.kept[probe.step]
        assert probe.before == pytest.approx(loss)
        assert probe.slope == pytest.approx(inner(grads, step), rel=1e-9)
    for probe in trace.next_batch:
        following, step = loop.kept[probe.step + 1], loop.kept[probe.step][1]
        assert probe.after == pytest.approx(following[2])
        end = probe.slope + 2 * probe.curvature
        assert end == pytest.approx(inner(following[0], step), rel=1e-9)


def test_a_gradient_that_a_hook_changes_is_no_slope_of_the_loss():
    """The loss half way is taken instead, so that the parabola is that of the loss."""
    slopes = []
    for hook in (False, True):
        loop = Loop(hook=hook)
        with nabla.trace.attach(loop.model, loop.optimizer, every=1, what="step") as trace:
            loop.run(2)
        (probe,) = trace.next_batch
        slopes.append(probe.slope)
        following, step = loop.kept[1], loop.kept[0][1]
        clamped = probe.slope + 2 * probe.curvature
        assert clamped == pytest.approx(inner(following[0], step), rel=0.2) or hook
    assert slopes[0] != slopes[1]


def test_between_two_looks_nothing_runs_but_a_counter():
    loop = Loop()
    with nabla.trace.attach(loop.model, loop.optimizer, every=50) as trace:
        loop.run(7)
        parameters = list(loop.model.parameters())
        assert not loop.model._forward_hooks and not loop.model._forward_pre_hooks
        assert not loop.optimizer._optimizer_step_pre_hooks
        assert len(loop.optimizer._optimizer_step_post_hooks) == 1
        assert not any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters)
        loop.run(44)
    assert trace.looks == [0, 50]
    assert len(trace.next_batch) == 5  # of the early ones; the step after the last never came
    assert not loop.optimizer._optimizer_step_post_hooks


def test_gradients_that_were_not_accumulated_are_not_compared_with():
    """What somebody asks for with autograd.grad on the way is none of the step."""
    model, x = nn.Linear(4, 4), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with nabla.trace.attach(model, optimizer, every=1, what="samples") as trace:
        loss = model(x).square().mean()
        torch.autograd.grad(model.weight.square().sum(), [model.weight])
        loss.backward()
        optimizer.step()

    assert trace.skipped == {} and trace.gram is not None


def test_a_step_of_gradients_written_by_hand_has_no_unchecked_samples():
    model, x = nn.Linear(4, 4), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with nabla.trace.attach(model, optimizer, every=1, what="samples") as trace:
        grads = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.grad = grad
        optimizer.step()

    assert trace.gram is None and "outside this call" in trace.skipped[0]


LOSSES = {
    "in place on a view": lambda out, y, model: _masked(out, y),
    "item assignment": lambda out, y, model: _assigned(out, y),
    "a sum that grows": lambda out, y, model: _grown(out, y),
    "functions": lambda out, y, model: F.cross_entropy(out, y) + out.exp().mean().log1p(),
}


def _masked(out, y):
    scaled = out * 2
    scaled[:, 0].mul_(0.5)
    return F.cross_entropy(scaled, y)


def _assigned(out, y):
    scaled = out * 2
    scaled[y == 1] = -1.0
    return F.cross_entropy(scaled, y)


def _grown(out, y):
    loss = F.cross_entropy(out, y)
    loss += 0.1 * out.square().mean()
    return loss


def look(make_loss, model=None, steps=2):
    """Trace some steps on one batch; return the trace and the true losses of step 0's batch."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    x, y, values = X[:16], Y[:16], []
    with nabla.trace.attach(model, optimizer, every=1, what="step") as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = make_loss(model(x), y, model)
            values.append(float(loss.detach()))
            loss.backward()
            optimizer.step()
    assert trace.failed == {}
    return trace, values


@pytest.mark.parametrize("name", LOSSES)
def test_the_way_to_the_loss_is_gone_again(name):
    trace, values = look(LOSSES[name])

    assert trace.own_batch[0].after == pytest.approx(values[1], rel=1e-12)
    assert trace.next_batch[0].before == pytest.approx(values[0], rel=1e-12)


def _penalised(out, y, model):
    return F.cross_entropy(out, y) + 0.1 * sum(p.square().sum() for p in model.parameters())


def _into_a_total(out, y, model):
    total = torch.zeros((), dtype=out.dtype)
    total += F.cross_entropy(out, y)
    return total


def _of_gradients(out, y, model):
    loss = F.cross_entropy(out, y)
    (slope,) = torch.autograd.grad(loss, [model[0].weight], create_graph=True)
    return loss + slope.square().sum()


@pytest.mark.parametrize("make_loss", [_penalised, _into_a_total, _of_gradients])
def test_a_loss_that_the_record_cannot_make_again_is_not_probed(make_loss):
    trace, _ = look(make_loss)

    assert trace.own_batch == () and trace.next_batch == ()


def test_a_total_of_the_user_keeps_its_value():
    totals = []

    def make_loss(out, y, model):
        totals.append(torch.zeros((), dtype=out.dtype))
        totals[-1] += F.cross_entropy(out, y)
        return totals[-1]

    _, values = look(make_loss, steps=3)

    assert [float(total.detach()) for total in totals] == values


@pytest.mark.parametrize("rate", [0.0, 1e-9, 1e-7, 1e-6])
def test_steps_below_the_rounding_of_the_loss_are_at_no_noise_floor(rate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), rate)
    with nabla.trace.attach(model, optimizer, every=2, what=("step",)) as trace:
        for _ in range(30):
            rows = torch.randint(64, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows].float()), Y[rows]).backward()
            optimizer.step()

    found = {issue.rule for issue in trace.issues}
    assert len(trace.next_batch) > 10
    assert found <= ({"GEO301"} if rate else set())
    assert "below the rounding" in trace.format() or rate > 1e-7


def train(rate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    x, y = X.float(), Y
    optimizer = torch.optim.SGD(model.parameters(), rate)

    with nabla.trace.attach(model, optimizer, every=5, what=("step",)) as trace:
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return {issue.rule: issue.severity for issue in trace.issues}


@pytest.mark.parametrize(
    ("rate", "severity"), [(1e-5, Severity.LOW), (0.1, Severity.INFO), (1.0, None)]
)
def test_small_steps_are_a_finding_where_all_of_them_lead_nowhere(rate, severity):
    assert train(rate).get("GEO301") is severity
