"""Planted faults in live loops: the layer and the step in which they began."""

import pytest
import torch
from torch import nn

import nabla


def stack(layers=6, width=16):
    torch.manual_seed(0)
    body = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*body, nn.Linear(width, 3))


def train(model, plant, steps=30, mode="standard"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    with nabla.guard(model, optimizer=optimizer, mode=mode) as monitor:
        for step in range(steps):
            plant(step)
            x = torch.randn(32, 16, generator=generator)
            loss = nn.functional.mse_loss(model(x), x[:, :3])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return monitor


def scaled(layer, factor, at):
    @torch.no_grad()
    def plant(step):
        if step == at:
            layer.weight *= factor

    return plant


@pytest.mark.parametrize("place", [0, 4, 8, 12])
def test_a_layer_that_explodes_is_the_origin(place):
    model = nn.Sequential(*(m for m in stack() if isinstance(m, nn.Linear)))
    layer = list(model)[place // 2]

    monitor = train(model, scaled(layer, 1e6, at=15))
    best = monitor.explain().best

    assert (best.root.layer, best.root.first_step) == (str(place // 2), 15)
    assert monitor.report().causes[0].where.module == str(place // 2)


@pytest.mark.parametrize("place", ["b", "c"])
def test_an_activation_that_several_layers_share_is_not_the_origin(place):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(16, 16) for _ in range(3))
            self.act, self.head = nn.ReLU(), nn.Linear(16, 3)

        def forward(self, x):
            for layer in (self.a, self.b, self.c):
                x = x + self.act(layer(x))
            return self.head(x)

    torch.manual_seed(0)
    model = Residual()

    monitor = train(model, scaled(getattr(model, place), 1e4, at=15))
    best = monitor.explain().best

    assert (best.root.layer, best.root.first_step) == (place, 15)
    assert "act" not in [issue.where.module for issue in monitor.issues if issue.where]


@pytest.mark.parametrize("place", [2, 6, 10])
def test_a_nan_made_in_a_layer_is_the_origin(place):
    model = stack()
    active = []
    model[place].register_forward_hook(lambda _, args, out: out * float("nan") if active else None)

    monitor = train(model, lambda step: active.append(1) if step == 20 else None)
    best = monitor.explain("non_finite").best

    assert (best.root.rule, best.root.layer, best.root.first_step) == ("NUM101", str(place), 20)


def test_a_healthy_training_has_no_cause():
    monitor = train(stack(), lambda step: None)

    assert not monitor.explain()
    assert monitor.report().causes == ()


def test_without_ranges_there_are_still_causes():
    model = nn.Sequential(*(m for m in stack() if isinstance(m, nn.Linear)))

    monitor = train(model, scaled(model[2], 1e6, at=15), mode="light")

    assert monitor.explain().best.root.rule != "CAU102"
    assert "CAU102" in [entry.rule for entry in monitor.report().not_evaluated]


def test_a_loop_that_still_runs_can_be_asked():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        model(torch.full((3, 4), float("nan"))).sum().backward()
        optimizer.step()
        assert monitor.explain().best.root.rule == "NUM104"
        optimizer.step()
