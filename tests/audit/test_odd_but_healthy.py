"""Programs that look odd and are right: no verdict above information."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules
from torch.optim.optimizer import register_optimizer_step_post_hook


def layers(inputs=6, outputs=3):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def data(steps=10, rows=16):
    inputs = torch.randn(steps, rows, 6)
    return [(x, x[:, :3].argmax(-1)) for x in inputs]


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def first_order_meta_learning():
    model = layers()
    outer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in data(6):
        inner = copy.deepcopy(model)
        fast = torch.optim.SGD(inner.parameters(), 0.1)
        for _ in range(2):
            step(fast, F.cross_entropy(inner(x), y))
        outer.zero_grad()
        for slow, quick in zip(model.parameters(), inner.parameters(), strict=True):
            slow.grad = slow.detach() - quick.detach()
        outer.step()


def tasks_summed_in_a_loop():
    trunk, heads = layers(6, 8), [nn.Linear(8, 3) for _ in range(3)]
    held = [*trunk.parameters(), *(p for head in heads for p in head.parameters())]
    optimizer = torch.optim.Adam(held)
    for _ in range(6):
        optimizer.zero_grad()
        for head, (x, y) in zip(heads, data(3), strict=True):
            F.cross_entropy(head(trunk(x)), y).backward()
        optimizer.step()


def soft_actor_with_delayed_policy():
    critic, actor = layers(9, 1), layers(6, 3)
    value = torch.optim.Adam(critic.parameters(), 1e-3)
    policy = torch.optim.Adam(actor.parameters(), 1e-3)
    for index, (x, _) in enumerate(data(12)):
        with torch.no_grad():
            action = actor(x).tanh()
        step(value, F.mse_loss(critic(torch.cat([x, action], 1)), x[:, :1]))
        if index % 2:
            step(policy, -critic(torch.cat([x, actor(x).tanh()], 1)).mean())


def target_network_by_polyak():
    online = layers(6, 2)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.RMSprop(online.parameters(), 1e-3)
    for x, _ in data(8):
        with torch.no_grad():
            wanted = x[:, 0] + 0.9 * target(x).max(1).values
        step(optimizer, F.mse_loss(online(x).max(1).values, wanted))
        with torch.no_grad():
            for mine, other in zip(target.parameters(), online.parameters(), strict=True):
                mine.lerp_(other, 0.05)


def gradient_noise_and_clipping_by_value():
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in data():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            parameter.grad.add_(0.01 * torch.randn_like(parameter.grad))
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()


def truncated_backpropagation():
    cell, head = nn.GRUCell(6, 12), nn.Linear(12, 3)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    hidden = torch.zeros(16, 12)
    for x, y in data():
        hidden = cell(x, hidden.detach())
        step(optimizer, F.cross_entropy(head(hidden), y))


def pruned_by_a_mask():
    model = layers()
    mask = (torch.rand_like(model[0].weight) > 0.5).float()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in data():
        with torch.no_grad():
            model[0].weight.mul_(mask)
        step(optimizer, F.cross_entropy(model(x), y))


def weight_normalised():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 12)), nn.Linear(12, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in data():
        step(optimizer, F.cross_entropy(model(x), y))


def layers_dropped_at_random():
    blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
    head = nn.Linear(6, 3)
    optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], 0.1)
    for index, (x, y) in enumerate(data(12)):
        for number, block in enumerate(blocks):
            x = x if (index + number) % 3 == 0 else x + block(x).tanh()
        step(optimizer, F.cross_entropy(head(x), y))


def cosine_with_a_warm_up():
    model = layers()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    parts = [schedules.LinearLR(optimizer, 0.01, 1.0, 3), schedules.CosineAnnealingLR(optimizer, 9)]
    scheduler = schedules.SequentialLR(optimizer, parts, [3])
    for x, y in data(12):
        step(optimizer, F.cross_entropy(model(x), y))
        scheduler.step()


def plateau_per_validation():
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = schedules.ReduceLROnPlateau(optimizer, patience=0)
    for x, y in data(12):
        loss = F.cross_entropy(model(x), y)
        step(optimizer, loss)
        scheduler.step(float(loss.detach()))
        scheduler.step(1.0)


def conjugate_closure():
    model = layers()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = data(1)[0]

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)


def self_distillation_with_stop_gradient():
    student, predictor = layers(6, 8), layers(8, 8)
    teacher = copy.deepcopy(student)
    held = [*student.parameters(), *predictor.parameters()]
    optimizer = torch.optim.SGD(held, 0.1)
    for x, _ in data(8):
        wanted = teacher(x + 0.1).detach()
        step(optimizer, 1 - F.cosine_similarity(predictor(student(x)), wanted).mean())
        for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
            mine.data.mul_(0.9).add_(other.data, alpha=0.1)


def curriculum_that_switches_a_loss_on():
    model, helper = layers(6, 8), nn.Linear(8, 6)
    head = nn.Linear(8, 3)
    held = [*model.parameters(), *helper.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(held)
    for index, (x, y) in enumerate(data(12)):
        hidden = model(x)
        loss = F.cross_entropy(head(hidden), y)
        if index > 5:
            loss = loss + F.mse_loss(helper(hidden), x)
        step(optimizer, loss)


def two_groups_with_one_frozen_by_its_rate():
    model = layers()
    groups = [
        {"params": model[0].parameters(), "lr": 0.0},
        {"params": model[2].parameters(), "lr": 0.1},
    ]
    optimizer = torch.optim.SGD(groups)
    for x, y in data():
        step(optimizer, F.cross_entropy(model(x), y))


def accumulating_until_enough_tokens():
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tokens = 0
    for index in range(24):
        ids = torch.randint(0, 12, (4, 4 + index % 5))
        logits = model(ids).flatten(0, 1)
        F.cross_entropy(logits, (ids.flatten() + 1) % 12, reduction="sum").backward()
        tokens += ids.numel()
        if tokens > 80:
            for parameter in model.parameters():
                parameter.grad /= tokens
            optimizer.step()
            optimizer.zero_grad()
            tokens = 0


PROGRAMS = [
    first_order_meta_learning,
    tasks_summed_in_a_loop,
    soft_actor_with_delayed_policy,
    target_network_by_polyak,
    gradient_noise_and_clipping_by_value,
    truncated_backpropagation,
    pruned_by_a_mask,
    weight_normalised,
    layers_dropped_at_random,
    cosine_with_a_warm_up,
    plateau_per_validation,
    conjugate_closure,
    self_distillation_with_stop_gradient,
    curriculum_that_switches_a_loss_on,
    two_groups_with_one_frozen_by_its_rate,
    accumulating_until_enough_tokens,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_odd_programs_are_silent(audited, program):
    loud = [issue for issue in audited(program) if issue.severity.label != "info"]
    assert [(issue.rule, issue.message) for issue in loud] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_auditing_changes_no_number(audited, program):
    def run(around):
        found = []
        handle = register_optimizer_step_post_hook(
            lambda optimizer, args, kwargs: found.extend(
                parameter.detach().clone()
                for group in optimizer.param_groups
                for parameter in group["params"]
            )
        )
        torch.manual_seed(0)
        around(program)
        handle.remove()
        return found

    plain, audit = run(lambda work: work()), run(audited)
    assert len(plain) == len(audit) > 0
    assert all(map(torch.equal, plain, audit))
