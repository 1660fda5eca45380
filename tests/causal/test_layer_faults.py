"""CAU104 and CAU105: what the ranges of layers decide, and what they do not."""

import contextlib

import pytest
import torch
from torch import nn

import nabla
from nabla_causal.frames import Frame, Frames
from nabla_causal.layer_faults import DEAD_STEPS, dead_layer, layer_jump


def seen(rows):
    """Frames from rows of ``(lows, highs, gradients)`` of each layer."""
    frames = tuple(
        Frame(
            step,
            [max(abs(low), abs(high)) for low, high in zip(lows, highs, strict=True)],
            gradients,
            lows,
            highs,
        )
        for step, (lows, highs, gradients) in enumerate(rows)
    )
    return Frames(tuple(f"layer.{place}" for place in range(len(rows[0][0]))), frames)


def alive(step):
    wobble = 1.0 + 0.01 * (step % 7)
    return [-wobble, 0.0, -wobble], [wobble, wobble, wobble], [0.1, 0.1, 0.1]


def sunk(step):
    """Layer 0 gives negative numbers only, so that layer 1, a ReLU, gives zeros."""
    wobble = 0.01 * (step % 7)
    return [-9.0 - wobble, 0.0, -1.0], [-3.0 - wobble, 0.0, -1.0], [0.0, 0.0, 0.1]


@pytest.mark.parametrize(("steps", "issues"), [(DEAD_STEPS - 1, 0), (DEAD_STEPS, 1)])
def test_a_layer_is_dead_after_eight_steps_of_zeros(steps, issues):
    rows = [alive(step) for step in range(12)] + [sunk(step) for step in range(steps)]

    found = list(dead_layer(seen(rows)))

    assert len(found) == issues
    for issue in found:
        assert (issue.where.module, issue.step) == ("layer.0", 12)
        assert issue.evidence["measured_at"] == "layer.1"
        assert "negative (largest -3" in issue.message


def test_a_layer_that_is_fed_by_negative_numbers_is_dead_from_the_start():
    assert [issue.step for issue in dead_layer(seen([sunk(step) for step in range(10)]))] == [0]


def test_a_gradient_that_comes_through_means_alive():
    rows = [alive(step) for step in range(12)]
    for step in range(10):
        lows, highs, _ = sunk(step)
        rows.append((lows, highs, [1e-9, 0.0, 0.1]))

    assert list(dead_layer(seen(rows))) == []


def test_a_layer_that_is_given_zeros_is_not_dead():
    """An idle expert: its first layer has a constant output, its bias, in every step."""
    idle = [-0.3, 0.0, 0.0], [-0.1, 0.0, 0.0], [0.0, 0.0, 0.0]
    rows = [alive(step) for step in range(12)] + [idle for _ in range(20)]

    assert list(dead_layer(seen(rows))) == []


def test_an_output_that_was_always_zero_is_left_alone():
    off = [-1.0, 0.0, -1.0], [1.0, 0.0, 1.0], [0.0, 0.1, 0.1]

    assert list(dead_layer(seen([off for _ in range(30)]))) == []


@pytest.mark.parametrize(
    ("before", "height", "after", "issues"),
    [(16, 101.0, 3, 1), (16, 99.0, 3, 0), (16, 101.0, 2, 0), (15, 101.0, 3, 0)],
)
def test_a_jump_is_a_hundredfold_and_stays(before, height, after, issues):
    rows = [([-1.0], [1.0], [0.1])] * before + [([-1.0], [height], [0.1])] * after

    found = list(layer_jump(seen(rows)))

    assert len(found) == issues
    assert all(issue.step == before for issue in found)


def test_what_comes_back_is_no_jump():
    rows = [([-1.0], [1.0], [0.1])] * 20 + [([-1.0], [5000.0], [0.1])] * 3
    rows += [([-1.0], [2.0], [0.1])] * 3

    assert list(layer_jump(seen(rows))) == []


@pytest.mark.parametrize(("later", "issues"), [(21.0, 1), (19.0, 0)])
def test_a_jump_has_to_stay_above_a_fifth_of_itself(later, issues):
    rows = [([-1.0], [1.0], [0.1])] * 20
    rows += [([-1.0], [height], [0.1]) for height in (101.0, 101.0, later)]

    assert len(list(layer_jump(seen(rows)))) == issues


def test_a_layer_that_starts_from_nothing_may_grow():
    """A branch that begins at zero: nothing was usual yet."""
    rows = [([0.0], [0.0], [0.1])] * 4 + [([0.0], [1e-4 * step**3], [0.1]) for step in range(1, 60)]

    assert list(layer_jump(seen(rows))) == []


class Experts(nn.Module):
    """Four experts; each token goes to one of them, the others are given zeros."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 8, bias=False))
            for _ in range(4)
        )
        self.busy = 2

    def forward(self, x):
        gates = self.router(x).softmax(-1)
        mask = torch.zeros_like(gates)
        mask[:, : self.busy] = 1.0
        gates = gates * mask
        return sum(
            gate[:, None] * expert(x * (gate > 0)[:, None])
            for gate, expert in zip(gates.unbind(-1), self.experts, strict=True)
        )


class Zeroed(nn.Module):
    """A branch that begins at zero, as in residual networks and adapters."""

    def __init__(self):
        super().__init__()
        self.body, self.down, self.up = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(2, 8)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return self.body(x) + self.up(self.down(x))


HEALTHY = {
    "relu": lambda: nn.Sequential(
        nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 8)
    ),
    "dropout": lambda: nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.9), nn.Linear(16, 8)
    ),
    "experts": Experts,
    "zeroed": Zeroed,
}


def train(model, plant=lambda step: None, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    generator = torch.Generator().manual_seed(1)
    with contextlib.redirect_stderr(None), nabla.guard(model, optimizer=optimizer) as monitor:
        for step in range(steps):
            plant(step)
            x = torch.randn(16, 8, generator=generator)
            loss = (model(x) - x.roll(1, -1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [issue for issue in monitor.report().issues if issue.rule in ("CAU104", "CAU105")]


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_models_have_no_faulty_layers(kind):
    torch.manual_seed(0)

    assert train(HEALTHY[kind]()) == []


def test_experts_that_fall_idle_are_no_dead_layers():
    torch.manual_seed(0)
    model = Experts()
    model.busy = 4

    def plant(step):
        model.busy = 4 if step < 30 else 2

    assert train(model, plant) == []


def test_a_dead_layer_is_found_in_a_long_quiet_run():
    torch.manual_seed(0)
    model = HEALTHY["relu"]()

    @torch.no_grad()
    def plant(step):
        if step == 101:
            model[2].bias.fill_(-100.0)

    (issue,) = train(model, plant, steps=240)

    assert (issue.rule, issue.where.module, issue.step) == ("CAU104", "2", 101)


def test_nothing_is_judged_that_nobody_selected(monkeypatch):
    monkeypatch.setenv("NABLA_IGNORE", "CAU")
    torch.manual_seed(0)
    model = HEALTHY["relu"]()

    @torch.no_grad()
    def plant(step):
        if step == 21:
            model[2].bias.fill_(-100.0)

    assert train(model, plant) == []
