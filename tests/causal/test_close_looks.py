"""CAU106 to CAU108: what a guarded loop says of gradients, saturation and inputs, and when not."""

import contextlib
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_causal.depth import faded, input_shift, saturated
from nabla_causal.looks import EndsLook, FadingLook


def chain(ratio, layers=6):
    names = [f"body.{number}" for number in range(layers)]
    step = ratio ** (1.0 / (layers - 1))
    return names, {name: 1e-3 * step**place for place, name in enumerate(names)}


@pytest.mark.parametrize(("ratio", "found"), [(0.9e4, False), (1.1e4, True)])
def test_gradients_fade_only_above_the_ratio(ratio, found):
    names, gradients = chain(ratio)

    assert (faded(gradients, names) is not None) is found


def test_fading_does_not_depend_on_the_unit_of_the_loss():
    names, gradients = chain(1e6)

    scaled = {name: 1e-9 * value for name, value in gradients.items()}

    assert faded(scaled, names)[2] == pytest.approx(faded(gradients, names)[2])


def test_three_layers_and_a_fall_in_one_place_only_are_no_fading():
    names, gradients = chain(1e6, layers=3)
    assert faded(gradients, names) is None

    frozen_like = dict.fromkeys(chain(1.0)[0], 1.0)
    frozen_like["body.0"] = 1e-9
    assert faded(frozen_like, list(frozen_like)) is None


@pytest.mark.parametrize(("share", "found"), [(0.69, None), (0.71, "b")])
def test_a_layer_is_saturated_only_above_the_share(share, found):
    assert saturated({"a": 0.1, "b": share, "c": 1.0 if found else 0.0}, ["a", "b", "c"]) == found


@pytest.mark.parametrize(("factor", "issues"), [(3.9, 0), (4.1, 1), (1 / 3.9, 0), (1 / 4.1, 1)])
def test_inputs_shift_only_beyond_four_times(factor, issues):
    sizes = [(8 * look, factor if look >= 6 else 1.0) for look in range(9)]

    found = list(input_shift("Net", sizes))

    assert [(issue.step, issue.evidence["after_step"]) for issue in found] == [(48, 40)] * issues


@pytest.mark.parametrize("odd", [1e9, math.nan])
def test_a_single_odd_batch_is_no_shift(odd):
    sizes = [(8 * look, odd if look == 4 else 1.0) for look in range(9)]

    assert list(input_shift("Net", sizes)) == []


class Looks:
    """Layers and close looks that show what they are told."""

    layout = tuple(f"body.{number}" for number in range(6))

    def __init__(self, ratio=1e3):
        values = [ratio ** (place / 5) for place in range(6)]
        lows, highs = [-value for value in values], values
        self.ranges = {"grad_out_min": lows, "grad_out_max": highs}
        self.ranges |= {"out_min": [-0.995] * 6, "out_max": [0.995] * 6}
        self.recent = [(step, self.ranges) for step in (24, 25)]
        self.wants_gradients, self.gradients, self.ends = False, {}, {}

    def listen_to(self, layers):
        self.heard = layers


@pytest.mark.parametrize(("looks", "issues"), [(2, 0), (3, 1)])
def test_saturation_takes_three_looks_in_a_row(looks, issues):
    shown, found = Looks(), []
    judge = EndsLook(shown, shown)
    for share in [*[0.9] * looks, 0.69, 0.9]:
        shown.ends = {"body.2": share}
        found += judge.judge()

    assert [(issue.where.module, issue.step) for issue in found] == [("body.2", 24)] * issues


@pytest.mark.parametrize(("looks", "issues"), [(2, 0), (3, 1)])
def test_fading_takes_three_looks_in_a_row(looks, issues):
    shown, found = Looks(), []
    judge = FadingLook(shown, shown)
    assert list(judge.judge()) == []  # nobody has looked closely yet
    for ratio in [*[1.1e4] * looks, 0.9e4, 1.1e4]:
        shown.gradients = chain(ratio)[1]
        found += judge.judge()

    assert [(issue.where.module, issue.step) for issue in found] == [("body.0", 24)] * issues


@pytest.mark.parametrize(("ratio", "asks"), [(99.0, False), (101.0, True)])
def test_gradients_are_looked_at_closely_once_they_fell_a_hundred_times(ratio, asks):
    shown = Looks(ratio)

    assert list(FadingLook(shown, shown).judge()) == []
    assert shown.wants_gradients is asks


@pytest.mark.parametrize(("looks", "issues"), [(2, 0), (3, 1)])
def test_a_shift_has_three_looks_before_it(looks, issues):
    sizes = [(8 * look, 5.0 if look >= looks else 1.0) for look in range(9)]

    assert len(list(input_shift("Net", sizes))) == issues


def trained(model, steps, *, live=None, change=lambda step, x: x, lr=0.05):
    optimizer = torch.optim.SGD(model.parameters(), lr)
    generator = torch.Generator().manual_seed(1)
    live = live or (lambda: nabla.guard(model, optimizer=optimizer))
    with contextlib.redirect_stderr(None), live() as watched:
        for step in range(steps):
            x = torch.randn(32, 8, generator=generator)
            loss = F.cross_entropy(model(change(step, x)), x[:, :3].argmax(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watched


def deep(act, residual=False, depth=12):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(16, 16), act()

        def forward(self, x):
            out = self.act(self.fc(x))
            return x + out if residual else out

    torch.manual_seed(0)
    blocks = [Block() for _ in range(depth)]
    return nn.Sequential(nn.Linear(8, 16), *blocks, nn.Linear(16, 3))


def loud(monitor):
    return {issue.rule for issue in monitor.issues if issue.severity > nabla.Severity.INFO}


def test_vanishing_gradients_are_named_under_guard():
    monitor = trained(deep(nn.Sigmoid), 70)

    (found, *_) = monitor.explain().of("vanishing_gradients")
    assert (found.root.rule, found.root.layer, found.root.first_step) == ("CAU106", "0", 0)


def test_the_same_depth_with_residual_connections_is_silent():
    assert loud(trained(deep(nn.ReLU, residual=True), 70, lr=0.01)) == set()


def squashed(scale, act=nn.Tanh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), act(), nn.Linear(16, 16), act(), nn.Linear(16, 3))
    return trained(model, 70, change=lambda step, x: scale * x)


@pytest.mark.parametrize("act", [nn.Tanh, nn.Sigmoid])
def test_saturated_activations_are_named_under_guard(act):
    monitor = squashed(1e3, act)

    (found, *_) = monitor.explain().of("saturated_activations")
    assert (found.root.rule, found.root.layer, found.root.first_step) == ("CAU107", "1", 0)
    assert loud(squashed(1.0, act)) == set()


def test_a_certain_answer_is_no_saturation():
    class Judge(nn.Sequential):
        """Ends in a sigmoid that is sure of its answers."""

    torch.manual_seed(0)
    model = Judge(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    nn.init.constant_(model[2].weight, 40.0)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for _ in range(70):
            x = torch.randn(32, 8)
            loss = F.mse_loss(model(x), (x[:, :1] > 0).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert "CAU107" not in loud(monitor)


def test_no_hook_stays_behind():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))

    trained(model, 11, change=lambda step, x: 1e3 * x)

    assert all(not module._forward_hooks for module in model.modules())


def test_a_loss_that_leaves_its_level_is_traced_to_inputs_of_another_size():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 3))

    monitor = trained(model, 150, change=lambda step, x: 40.0 * x if step >= 105 else x, lr=0.3)

    (best, *_) = monitor.explain().of("data_anomaly")
    assert (best.root.rule, best.root.first_step) == ("CAU108", 105)
    assert best.concerns("exploding_activations")


def test_a_shift_alone_is_not_told():
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 3))

    monitor = trained(model, 120, change=lambda step, x: 40.0 * x if step >= 60 else x)

    assert monitor.report().issues == ()


def test_what_watch_measures_anyway_is_said_once():
    model = deep(nn.Sigmoid)

    run = trained(model, 40, live=lambda: nabla.watch(model, quiet=True))

    rules = {issue.rule for issue in run.finish().issues}
    assert "RUN302" in rules and "CAU106" not in rules
