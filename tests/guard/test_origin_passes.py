"""Bad losses and gradients of loops of every kind, also without an optimizer and late in a run."""

import math

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LATE = 37  # deep in a calm loop

program = PROGRAMS = Programs()


def pairs(steps=5, size=8, width=6, classes=3):
    return [(torch.randn(size, width), torch.randint(0, classes, (size,))) for _ in range(steps)]


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def fit(log, model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        log(value)
    log(*model.parameters())


@program("NUM103", "loss", "nll_loss_forward", 3, module="")
def trainer_class_with_ignored_labels(log):
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.criterion = nn.CrossEntropyLoss()
            self.opt = torch.optim.AdamW(model.parameters(), 1e-3)

        def compute_loss(self, batch):
            return self.criterion(self.model(batch["x"]), batch["y"])  # born

        def training_step(self, batch):
            loss = self.compute_loss(batch)
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            return loss

    t = Trainer(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    for step, (x, y) in enumerate(pairs(7)):
        if step == 3:
            y = torch.full_like(y, -100)
        log(t.training_step({"x": x, "y": y}))


@program("NUM103", "loss", "mean", 2)
def mean_of_no_selected_losses(log):
    def select(loss, keep):
        return loss[keep].mean()  # born

    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step, (x, _) in enumerate(pairs(6)):
        optimizer.zero_grad()
        r = (model(x).squeeze(-1) - 1).square()
        loss = select(r, r < (0 if step == 2 else 1e9))
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "logsumexp", 2, sample=3)
def energy_over_no_candidates(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, _) in enumerate(pairs()):
        allowed = torch.ones(8, 3, dtype=torch.bool)
        if step == 2:
            allowed[3] = False
        optimizer.zero_grad()
        s = model(x).masked_fill(~allowed, -math.inf)
        loss = -torch.logsumexp(s, -1).mean()  # born
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "max", 2, sample=1)
def maximum_over_nothing(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, _y) in enumerate(pairs()):
        allowed = torch.ones(8, 3).bool()
        if step == 2:
            allowed[1] = False
        optimizer.zero_grad()
        q = model(x).masked_fill(~allowed, -torch.inf).max(-1).values  # born
        loss = F.mse_loss(q, torch.zeros(8))
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "_ctc_loss", 2)
def ctc_of_a_target_that_is_too_long(log):
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(5):
        x = torch.randn(4, 3, 6)
        t = torch.randint(1, 5, (3, 4))
        n = torch.tensor([2, 2, 2])
        t[:, 1] = (t[:, 0] % 4) + 1
        if step == 2:
            n[1] = 4
            t[1] = torch.tensor([1, 1, 1, 1])
        optimizer.zero_grad()
        loss = F.ctc_loss(model(x).log_softmax(-1), t, torch.full((3,), 4), n)  # born
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "div", 37)
def late_empty_mask(log):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs(45)):
        w = torch.ones(8) if step != LATE else torch.zeros(8)
        optimizer.zero_grad()
        loss = (F.cross_entropy(model(x), y, reduction="none") * w).sum() / w.sum()  # born
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "div", 2)
def scaler_cannot_help(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    s = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step, (x, y) in enumerate(pairs()):
        w = torch.ones(8) if step != 2 else torch.zeros(8)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
        loss = (F.cross_entropy(out.float(), y, reduction="none") * w).sum() / w.sum()  # born
        s.scale(loss).backward()
        s.step(optimizer)
        s.update()
        log(loss)


@program("NUM103", "loss", "div", 2)
def no_optimizer_at_all(log):
    model = nn.Linear(6, 1)
    batches = pairs(6)
    for step, (x, _) in enumerate(batches):
        w = torch.ones(8) if step != 2 else torch.zeros(8)
        loss = ((model(x).squeeze(-1) - 1).square() * w).sum() / w.sum()  # born
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-2 * p.grad
        log(loss)


@program("NUM102", "backward", "SqrtBackward0", 2, sample=4)
def no_optimizer_and_a_bad_derivative(log):
    model = nn.Linear(6, 3, bias=False)
    batches = pairs(6)
    batches[2][0][4] = 0
    for _step, (x, _) in enumerate(batches):
        loss = model(x).square().sum(-1).sqrt().mean()  # born
        for p in model.parameters():
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-2 * p.grad
        log(loss)


@program("NUM101", "forward", "log", 2, sample=0)
def functional_weights_updated_by_hand(log):
    w = torch.randn(6, 3, requires_grad=True)
    batches = pairs(6)
    for step, (x, y) in enumerate(batches):
        p = (x @ w).softmax(-1)
        if step == 2:
            p = p * torch.tensor([0.0, 1, 1])
        picked = p[torch.arange(8), y * (step != 2)]
        loss = -torch.log(picked).mean()  # born
        loss.backward()
        with torch.no_grad():
            w -= 1e-2 * w.grad
            w.grad = None
        log(loss)


@program("NUM103", "loss", "div", 1)
def own_optimizer_class_not_of_torch(log):
    class Plain:
        def __init__(self, ps, lr):
            self.ps = list(ps)
            self.lr = lr

        def step(self):
            with torch.no_grad():
                for p in self.ps:
                    p.add_(p.grad, alpha=-self.lr)

        def zero_grad(self):
            for p in self.ps:
                p.grad = None

    model = mlp()
    optimizer = Plain(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs()):
        w = torch.ones(8) if step != 1 else torch.zeros(8)
        optimizer.zero_grad()
        loss = (F.cross_entropy(model(x), y, reduction="none") * w).sum() / w.sum()  # born
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM102", "backward", "SqrtBackward0", 2, sample=4)
def grad_function_instead_of_backward(log):
    model = nn.Linear(6, 3, bias=False)
    ps = list(model.parameters())
    optimizer = torch.optim.SGD(ps, 1e-3)
    batches = pairs()
    batches[2][0][4] = 0
    for x, _y in batches:
        loss = model(x).square().sum(-1).sqrt().mean()  # born
        for p, g in zip(ps, torch.autograd.grad(loss, ps), strict=False):
            p.grad = g
        optimizer.step()
        log(loss)


@program("NUM102", "backward", "div", 2, module="", sample=0)
def a_hook_that_normalises_nothing(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs()):
        h = model[1](model[0](x))
        h.register_hook(lambda g: g / g.norm())  # born
        optimizer.zero_grad()
        loss = F.cross_entropy(model[2](h), y) * (0.0 if step == 2 else 1.0)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM102", "backward", "div", 2, sample=0)
def gradients_normalised_by_hand(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs()):
        optimizer.zero_grad()
        loss = classify(model, x, y) * (0.0 if step == 2 else 1.0)
        loss.backward()
        for p in model.parameters():
            p.grad = p.grad / p.grad.norm()  # born
        optimizer.step()
        log(loss)


@program("NUM102", "backward", "SqrtBackward0", 2, sample=1)
def a_checkpoint_in_the_loop_that_runs_again_inside_of_backward(log):
    first, last = nn.Linear(6, 6, bias=False), nn.Linear(6, 3)
    parameters = [*first.parameters(), *last.parameters()]
    optimizer = torch.optim.SGD(parameters, 1e-3)

    def block(x):
        return first(x).square().sum(-1, keepdim=True).sqrt() * x  # born

    for step, (x, _) in enumerate(pairs()):
        x[1] *= step != 2
        optimizer.zero_grad()
        out = last(checkpoint(block, x.requires_grad_(), use_reentrant=True))
        out.mean().backward()
        optimizer.step()
    log(*parameters)


@program("NUM102", "backward", "SqrtBackward0", 37, sample=4)
def late_root_of_zero(log):
    model = nn.Linear(6, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, _y) in enumerate(pairs(45)):
        if step == LATE:
            x[4] = 0
        optimizer.zero_grad()
        loss = model(x).square().sum(-1).sqrt().mean()  # born
        loss.backward()
        optimizer.step()
        log(loss)


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_in_a_pass_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op, issue.step) == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message
