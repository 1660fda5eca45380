"""When a shadow sample is taken, what it may not disturb, and what it says it cannot judge."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_core.errors import UsageError
from nabla_guard import guard, shadow_rule
from nabla_guard.shadow.limits import Schedule
from nabla_guard.shadow.registry import registered
from nabla_guard.shadow.watch import ShadowWatch


class Unstable(nn.Module):
    """A variance of large numbers, with a head that is trained."""

    def __init__(self, eps=1e-3):
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.eps = eps

    def forward(self, x):
        var = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
        return self.head((x - x.mean(-1, keepdim=True)) / (var.abs() + self.eps).sqrt())


def train(model, steps=4, offset=0.0, after_step=lambda step: None):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    losses = []
    for step in range(steps):
        x, y = torch.randn(8, 8) + offset, torch.randint(0, 3, (8,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after_step(step)
    return losses


def numeric(issues):
    return [(issue.rule, issue.step) for issue in issues if issue.rule.startswith("NUM")]


def taken(monitor):
    return monitor._loop.watches.gather(ShadowWatch).taken


@pytest.mark.parametrize(("shadow", "samples"), [("off", 0), ("sample", 3), ("always", 6)])
def test_samples_are_taken_by_the_schedule(shadow, samples):
    with guard(shadow=shadow) as monitor:
        train(Unstable(), steps=6)

    assert taken(monitor) == samples


def test_later_samples_are_at_least_as_far_apart_as_asked_for():
    monitor = guard()
    monitor._loop.watches.gather(ShadowWatch).schedule = Schedule(early_steps=(2,), every_steps=20)
    with monitor:
        train(Unstable(), steps=60)

    assert taken(monitor) in (2, 3)  # a calm loop is looked at every sixteenth step


def test_a_defect_is_found_in_the_first_step_and_counted_later():
    with guard() as monitor:
        train(Unstable(), offset=3000.0)

    (issue,) = [found for found in monitor.issues if found.rule.startswith("NUM")]
    assert (issue.rule, issue.step, issue.last_step, issue.count) == ("NUM122", 0, 3, 3)
    assert issue.where.op == "sub"
    assert issue.where.module == ""
    assert issue.evidence["relative_error"].value > issue.evidence["relative_error"].limit


def test_a_sample_can_be_asked_for():
    with guard(shadow="off") as monitor:
        train(Unstable(), offset=3000.0, after_step=lambda step: step == 1 and monitor.shadow())

    assert numeric(monitor.issues) == [("NUM122", 2)]
    assert taken(monitor) == 1


def test_off_is_said_and_light_refuses():
    with guard(shadow="off") as monitor:
        train(Unstable(), offset=3000.0)
    assert "NUM122" in {missing.rule for missing in monitor.report().not_evaluated}

    with guard(mode="light") as light, pytest.raises(UsageError, match="standard"):
        light.shadow()


def test_light_says_what_it_does_not_evaluate():
    with guard(mode="light") as monitor:
        train(Unstable(), offset=3000.0)

    report = monitor.report()
    assert numeric(report.issues) == []
    assert any("NUM121" in missing.rule for missing in report.not_evaluated)


def test_python_state_of_forward_and_hooks_is_put_back():
    calls, seen, serial = [], {}, itertools.count()

    class Counting(Unstable):
        total = 0

        def forward(self, x):
            self.total += 1
            calls.append(x.shape)
            seen[len(calls)] = next(serial)
            return super().forward(x)

    model = Counting()
    counter = 0

    def hook(module, args, output):
        nonlocal counter
        counter += 1

    model.head.register_forward_hook(hook)
    with guard(shadow="always"):
        train(model, steps=3)

    assert (model.total, len(calls), len(seen), counter) == (3, 3, 3, 3)


def test_buffers_and_losses_are_bit_identical():
    def make():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3)
        )

    plain, watched = make(), make()
    losses = train(plain)
    with guard(shadow="always") as monitor:
        assert train(watched) == losses

    assert taken(monitor) == 4
    states = zip(plain.state_dict().values(), watched.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in states)


def test_an_op_without_a_shadow_is_said_once():
    library = torch.library.Library("shadow_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", _twice, "CPU")
    library.impl("twice", torch.library.fallthrough_kernel, "Autograd")

    class Net(Unstable):
        def forward(self, x):
            return self.head(x + torch.ops.shadow_tests.twice(x))

    with guard(shadow="always") as monitor:
        train(Net())

    (issue,) = [found for found in monitor.issues if found.rule == "NUM151"]
    assert issue.where.op == "shadow_tests::twice"
    assert "float32 only" in issue.message
    assert issue.severity.label == "info"


def _twice(x):
    if x.dtype is not torch.float32:
        raise TypeError("twice: float32 only")
    return x * 2


def test_a_registered_rule_gives_an_op_its_shadow():
    library = torch.library.Library("shadow_rules", "DEF")
    library.define("half(Tensor x) -> Tensor")
    library.impl("half", lambda x: (x.float() / 2).to(x.dtype), "CPU")
    library.impl("half", torch.library.fallthrough_kernel, "Autograd")
    seen = []

    @shadow_rule("shadow_rules::half")
    def half(x):
        seen.append(x.dtype)
        return x * 0.75  # wrong on purpose: the op is held against the rule

    class Net(Unstable):
        def forward(self, x):
            return self.head(torch.ops.shadow_rules.half(x * 1.0))

    with guard() as monitor:
        train(Net(), steps=1)

    assert seen
    assert set(seen) == {torch.float64}
    assert numeric(monitor.issues) == [("NUM121", 0)]
    assert monitor.issues[0].where.op == "half"


@pytest.mark.parametrize("op", ["exp", "aten::exp.default", "", 3])
def test_a_malformed_op_is_refused(op):
    with pytest.raises(UsageError, match="namespace"):
        shadow_rule(op)


def test_one_op_has_one_rule_and_a_rule_is_a_function():
    with pytest.raises(UsageError, match="already"):
        shadow_rule("aten::mkldnn_rnn_layer")
    with pytest.raises(UsageError, match="above a function"):
        shadow_rule("shadow_rules::nothing")(3)
    assert registered("shadow_rules::nothing") is None


def test_a_step_that_uses_the_last_one_is_said_to_be_unverified():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with guard(shadow="always") as monitor:
        state = torch.zeros(2, 4)
        for _ in range(3):
            optimizer.zero_grad()
            state = torch.tanh(model(torch.randn(2, 4)) + state.detach())
            state.square().mean().backward()
            optimizer.step()

    assert {rule for rule, _ in numeric(monitor.issues)} <= {"NUM151"}


@pytest.mark.parametrize(
    ("top", "dtype", "found"),
    [
        (85.0, torch.float32, True),
        (70.0, torch.float32, False),
        (10.8, torch.float16, True),
        (9.0, torch.float16, False),
    ],
)
def test_an_argument_near_the_limit_of_exp_is_a_risk(top, dtype, found):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            scores = (x.clamp(-1, 0) + top).to(dtype).exp()
            return self.head((scores / scores.amax(-1, keepdim=True)).float())

    with guard() as monitor:
        train(Net(), steps=1, offset=1.0)

    issues = [issue for issue in monitor.issues if issue.rule.startswith("NUM")]
    assert [issue.rule for issue in issues] == ["NUM111"] * found
    if found:
        assert issues[0].where.op == "exp"
        assert issues[0].where.function == "forward"


@pytest.mark.parametrize(("size", "found"), [(300.0, True), (100.0, False)])
def test_float16_results_near_the_end_of_their_range_are_a_risk(size, found):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            wide = x.clamp(-0.7, 0.7).half() * size
            return self.head((wide * wide).float() / 1e4)

    with guard() as monitor:
        train(Net(), steps=1)

    issues = [issue for issue in monitor.issues if issue.rule.startswith("NUM")]
    assert [issue.rule for issue in issues] == ["NUM111"] * found
    assert all(issue.where.op == "mul" for issue in issues)


def test_what_adds_up_over_modules_is_found_by_every_second_sample():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with guard() as monitor:
        for _ in range(3):
            x, width = torch.randn(16, 4), 1e-6
            optimizer.zero_grad()
            slope = (model(x + width) - model(x - width)) / (2 * width)
            slope.square().mean().backward()
            optimizer.step()

    (issue,) = [found for found in monitor.issues if found.rule.startswith("NUM")]
    assert (issue.rule, issue.step, issue.where.op) == ("NUM122", 1, "sub")
    assert issue.message.startswith("The loss is off by")
    assert issue.where.file.endswith("test_shadow_sampling.py")


@pytest.mark.parametrize(("distance", "found"), [(1e-4, True), (1e-2, False)])
def test_a_loss_without_a_correct_digit_is_said_although_its_gradient_is_right(distance, found):
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with guard() as monitor:
        for _ in range(2):
            optimizer.zero_grad()
            near = model(torch.randn(16, 8))
            other = (near + distance * torch.randn(16, 8)).detach()
            (1 - F.cosine_similarity(near, other, dim=-1)).mean().backward()
            optimizer.step()

    issues = [issue for issue in monitor.issues if issue.rule.startswith("NUM")]
    assert all(issue.severity.label == "info" for issue in issues)
    assert bool(issues) == found


def test_a_jump_of_the_loss_is_worth_a_sample():
    with guard() as monitor:
        torch.manual_seed(0)
        model = Unstable(eps=1e-9)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for step in range(12):
            x, y = torch.randn(8, 8) + (5e3 if step == 10 else 0.0), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert numeric(monitor.issues) == [("NUM122", 10)]
