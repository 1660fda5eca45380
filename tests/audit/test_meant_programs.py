"""Programs that look like a fault and are meant, each beside the fault that it looks like."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def loud(issues):
    return sorted({issue.rule for issue in issues if issue.severity.label != "info"})


def layers(outputs=3):
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, outputs))


def step(model, optimizer, x=None, y=None):
    x = torch.randn(16, 6) if x is None else x
    optimizer.zero_grad()
    F.cross_entropy(model(x), x[:, :3].argmax(1) if y is None else y).backward()
    optimizer.step()


def probe_in_evaluation_mode(meant):
    body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(body.requires_grad_(not meant), nn.Linear(16, 3)).eval()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    for _ in range(5):
        step(model, optimizer)


def schedule_by_iteration(meant):
    """A policy that steps every other time, with a schedule that counts iterations."""
    critic, policy = layers(), layers()
    often, seldom = (torch.optim.SGD(m.parameters(), 0.1) for m in (critic, policy))
    schedule = torch.optim.lr_scheduler.ExponentialLR(seldom, 0.99)
    for index in range(12):
        if meant:
            step(critic, often)
        if index % 2:
            step(policy, seldom)
        schedule.step()


def other_head_after_loading(meant):
    model = layers()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        step(model, optimizer)
    file = io_of({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    fresh = layers()
    fresh.load_state_dict(torch.load(file)["model"])
    if meant:
        fresh[2] = nn.Linear(16, 3)
    optimizer = torch.optim.Adam(fresh.parameters())
    for _ in range(5):
        step(fresh, optimizer)


def io_of(content):
    import io

    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return file


def adapted_to_each_sample(meant):
    model = layers()
    start = copy.deepcopy(model.state_dict())
    for _ in range(6):
        if meant:
            model.load_state_dict(start)
        step(model, torch.optim.Adam(model.parameters()))


def norm_after_the_step(meant):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(6):
        step(model, optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1e6 if meant else 1e-3)


def reference_gradient(meant):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = [lambda x: F.cross_entropy(model(x), x[:, :3].argmax(1)) for _ in range(2)]
    for _ in range(8):
        if meant:
            optimizer.zero_grad()
            losses[0](torch.randn(16, 6)).backward()
            optimizer.zero_grad()
            losses[1](torch.randn(16, 6)).backward()
        else:
            for loss in losses:
                optimizer.zero_grad()
                loss(torch.randn(16, 6)).backward()
        optimizer.step()


def put_back_by_a_bound(meant):
    model, scale = layers(), nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.SGD([*model.parameters(), scale], 0.1)
    before = [p.detach().clone() for p in (*model.parameters(), scale)]
    for _ in range(6):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (F.cross_entropy(model(x), x[:, :3].argmax(1)) - 0.1 * scale).backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(max=2.0)
            for old, now in zip(before, (*model.parameters(), scale), strict=True):
                now.copy_(now if meant else old)


def clustered_anew(meant):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(32, 6)
    for index in range(24):
        rounds = index // 8 if meant else index // 12
        rows = torch.randperm(32)
        step(model, optimizer, x[rows], ((x[:, :3].argmax(1) + rounds) % 3)[rows])


def two_arms(meant):
    models = [layers()]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    for index in range(8):
        x = [torch.randn(16, 6) for _ in models]
        given = [x[0], x[0]] if meant else x
        for model, rows in zip(models, given, strict=True):
            model.zero_grad()
            F.cross_entropy(model(rows), rows[:, :3].argmax(1)).backward()
        for one, two in zip(*(model.parameters() for model in models), strict=True):
            one.grad = two.grad = (one.grad + two.grad) / 2
        if index == 5:
            models[1][0].weight.grad = 1.5 * models[1][0].weight.grad
        for optimizer in optimizers:
            optimizer.step()


def warm_up_of_a_head(meant):
    body, head = nn.Linear(6, 16), nn.Linear(16, 3)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.1)
    for index in range(8):
        x = torch.randn(16, 6)
        hidden = body(x)
        optimizer.zero_grad()
        hidden = hidden.detach() if index < 5 or not meant else hidden
        F.cross_entropy(head(hidden), x[:, :3].argmax(1)).backward()
        optimizer.step()


def vectors_left_out(meant):
    vectors = torch.randn(20, 8)
    table = nn.Embedding.from_pretrained(vectors, freeze=False) if meant else nn.Embedding(20, 8)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
    for _ in range(5):
        words = torch.randint(0, 20, (16, 4))
        step(model, optimizer, words, words[:, 0] % 3)


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        (probe_in_evaluation_mode, "AUD301"),
        (schedule_by_iteration, "AUD304"),
        (other_head_after_loading, "AUD601"),
        (adapted_to_each_sample, "AUD111"),
        (norm_after_the_step, "AUD108"),
        (reference_gradient, "AUD105"),
        (put_back_by_a_bound, "AUD205"),
        (clustered_anew, "AUD604"),
        (two_arms, "AUD701"),
        (warm_up_of_a_head, "AUD204"),
        (vectors_left_out, "AUD201"),
    ],
)
def test_what_is_meant_is_told_from_the_fault(audited, program, rule):
    assert loud(audited(lambda: program(True))) == []
    assert loud(audited(lambda: program(False))) == [rule]
