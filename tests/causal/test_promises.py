"""Each kind of failure, in a real training: its name finds the hypothesis, with layer and step."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla


def mlp(depth, act, gain=0.0, width=32):
    torch.manual_seed(0)
    sizes = [16, *[width] * depth]
    pairs = zip(sizes, sizes[1:], strict=False)
    body = [part for pair in pairs for part in (nn.Linear(*pair), act())]
    model = nn.Sequential(*body, nn.Linear(width, 4))
    for layer in model:
        if gain and isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=gain / layer.in_features**0.5)
    return model


def train(model, steps, lr=0.1, change=lambda step, x: x, live=nabla.watch):
    """Return what there is to ask about a training."""
    optimizer = torch.optim.SGD(model.parameters(), lr)
    generator = torch.Generator().manual_seed(1)
    watching = (
        live(model, optimizer, quiet=True)
        if live is nabla.watch
        else live(model, optimizer=optimizer)
    )
    with contextlib.redirect_stderr(None), watching as run:
        for step in range(steps):
            x = torch.randn(32, 16, generator=generator)
            loss = F.cross_entropy(model(change(step, x)), x[:, :4].argmax(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return nabla.explain(run.finish() if live is nabla.watch else run.report())


def test_vanishing_gradients():
    (found, *_) = train(mlp(12, nn.Sigmoid), 60).of("vanishing_gradients")

    assert (found.root.rule, found.root.layer, found.root.first_step) == ("RUN302", "0", 0)


@pytest.mark.parametrize("layer", ["4", "8"])
def test_exploding_gradients_name_the_first_layer_that_explodes(layer):
    model = mlp(6, nn.ReLU)

    @torch.no_grad()
    def change(step, x):
        if step == 25:
            dict(model.named_modules())[layer].weight.mul_(1e5)
        return x

    explanation = train(model, 40, change=change, lr=0.01, live=nabla.guard)
    (found, *_) = explanation.of("exploding_gradients")

    assert (found.root.layer, found.root.first_step) == (layer, 25)
    assert explanation.chain("exploding_gradients")[0].layer == layer


def test_dead_neurons():
    model = mlp(3, nn.ReLU)
    nn.init.constant_(model[2].bias, -50.0)

    for live in (nabla.guard, nabla.watch):
        (found, *_) = train(model, 40, live=live).of("dead_neurons")
        assert (found.root.layer, found.root.first_step) == ("2", 0)


def test_saturated_activations():
    (found, *_) = train(mlp(3, nn.Tanh, gain=30.0), 60, lr=0.05).of("saturated_activations")

    assert (found.root.rule, found.root.layer) == ("RUN402", "0")


def test_a_loss_spike_is_traced_to_what_the_first_layer_was_given():
    def change(step, x):
        return x * (200.0 if step == 90 else 1.0)

    explanation = train(mlp(2, nn.ReLU), 120, change=change, live=nabla.guard)
    (found, *_) = explanation.of("optimizer_instability")

    assert (found.root.layer, found.root.first_step) == ("0", 90)
    assert "0 or in what it was given at step 90" in found.description
    assert "without the batch of step 90" in found.tests[0]


def test_divergence():
    torch.manual_seed(0)
    (found, *_) = train(mlp(4, nn.ReLU), 60, lr=3.0).of("optimizer_stability")

    assert found.root.failure == "step_too_large"


def watched(rows, **hints):
    with nabla.watch(quiet=True, hints=hints or None) as run:
        for step, row in enumerate(rows):
            run.log(step, **row)
    return nabla.explain(run.finish())


def test_a_plateau():
    generator = torch.Generator().manual_seed(0)
    noise = 0.004 * torch.randn(400, generator=generator)
    rows = [{"loss": 1.386 + float(one)} for one in noise]

    (found, *_) = watched(rows, loss="cross_entropy", classes=4).of("optimizer_instability")

    assert (found.root.rule, found.root.to_state) == ("RUN107", "plateau")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("live", [nabla.guard, nabla.watch])
def test_inputs_that_are_not_finite(value, live):
    data = torch.zeros(32, 16)
    data[3, 2] = value

    def change(step, x):
        return x + data if step == 25 else x

    (found, *_) = train(mlp(2, nn.ReLU), 32, change=change, live=live).of("data_anomaly")

    assert (found.root.rule, found.root.first_step, found.root.sample) == ("NUM104", 25, 3)
    assert found.standing == "confirmed"


def test_a_shift_of_the_inputs_where_their_spread_is_logged(monkeypatch):
    monkeypatch.setenv("NABLA_PREVIEW", "1")  # the rule is still on trial
    model = mlp(2, nn.ReLU)
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    rows = []
    for step in range(190):
        x = torch.randn(64, 16)
        target = x[:, :4].argmax(-1)
        if step >= 150:
            x = -4.0 * x
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append({"loss": loss.item(), "input_std": x.std().item()})

    (found, *_) = watched(rows).of("data_anomaly")

    assert (found.root.rule, found.root.first_step) == ("RUN501", 150)
    assert found.concerns("optimizer_instability")
