"""Loops that take derivatives by hand: no optimizer, no module needed, no gradient written."""

import math

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F

program = PROGRAMS = Programs()
HEALTHY = []


def healthy(function):
    HEALTHY.append(pytest.param(function, id=function.__name__))
    return function


def weights():
    return torch.randn(6, 3).requires_grad_()


def root_of_squares(w, x):
    return (x @ w).pow(2).sum(-1).sqrt().mean()


@program("NUM101", "forward", "div", 3)
def weights_changed_in_place(log):
    w = weights()
    for step in range(6):
        x, count = torch.randn(8, 6), torch.ones(8, 1)
        count[3] = step != 3
        (g,) = torch.autograd.grad(((x @ w) / count).pow(2).mean(), [w])  # born
        with torch.no_grad():
            w -= 1e-3 * g
    log(w)


@program("NUM102", "backward", "SqrtBackward0", 25)
def weights_replaced_late_in_the_run(log):
    w, speed = weights(), torch.zeros(6, 3)
    for step in range(30):
        x = torch.randn(8, 6)
        x[3] *= step != 25
        loss = (x @ w).pow(2).sum(-1).sqrt().mean()  # born
        (g,) = torch.autograd.grad(loss, w)
        speed = 0.9 * speed + g
        w = (w - 1e-3 * speed).detach().requires_grad_()
        log(loss)


@program("NUM105", "parameter", "div", 3)
def an_update_by_a_normalised_derivative(log):
    w = weights()
    for step in range(7):
        loss = (torch.randn(8, 6) @ w).pow(2).mean() * (step != 3)
        (g,) = torch.autograd.grad(loss, w)
        w = (w - 1e-2 * g / g.norm()).detach().requires_grad_()  # born
    log(w)


@program("NUM101", "forward", "div", 3)
def weights_that_adapt_to_tasks(log):
    w = torch.randn(6, 1).requires_grad_()
    for step in range(6):
        total = torch.zeros(())
        for task in range(2):
            x, y, count = torch.randn(8, 6), torch.randn(8, 1), torch.ones(8, 1)
            count[4] = (step, task) != (3, 1)
            inner = ((x @ w - y) / count).pow(2).mean()  # born
            (g,) = torch.autograd.grad(inner, w, create_graph=True)
            total = total + (torch.randn(8, 6) @ (w - 0.01 * g)).pow(2).mean()
        (g,) = torch.autograd.grad(total, w)
        with torch.no_grad():
            w -= 1e-2 * g
    log(w)


@program("NUM102", "backward", "SqrtBackward0", 2, sample=5)
def a_residual_of_a_differential_equation(log):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    parameters = list(model.parameters())
    for step in range(5):
        x = torch.rand(8, 1)
        x[5] *= step != 2
        x.requires_grad_()
        u = model(x * 1.0) * torch.sqrt(x)  # born
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        grads = torch.autograd.grad((slope + u).pow(2).mean(), parameters)
        with torch.no_grad():
            for p, g in zip(parameters, grads, strict=True):
                p -= 1e-3 * g
    log(*parameters)


@program("NUM101", "forward", "nll_loss_forward", 2)
def a_loss_without_terms_that_leaves_the_weights_clean(log):
    w = weights()
    for step in range(6):
        y = torch.randint(0, 3, (8,)) if step != 2 else torch.full((8,), -100)
        (g,) = torch.autograd.grad(F.cross_entropy(torch.randn(8, 6) @ w, y), w)  # born
        with torch.no_grad():
            w -= 1e-2 * g
    log(w)


@program("NUM101", "forward", "div", 3)
def passes_that_write_gradients_and_passes_that_do_not(log):
    w = weights()
    for step in range(6):
        (torch.randn(8, 6) @ w).pow(2).mean().backward()
        with torch.no_grad():
            w -= 1e-2 * w.grad
            w.grad = None
        count = torch.tensor(8.0 * (step != 3))
        (g,) = torch.autograd.grad((torch.randn(8, 6) @ w).pow(2).sum() * count / count, w)  # born
        with torch.no_grad():
            w -= 1e-3 * g
    log(w)


@program("NUM102", "backward", "SqrtBackward0", 3)
def a_functional_transform(log):
    model = nn.Linear(6, 3, bias=False)
    named = {name: p.detach().clone() for name, p in model.named_parameters()}

    def loss(named, x):
        return torch.func.functional_call(model, named, (x,)).pow(2).sum(-1).sqrt().mean()  # born

    for step in range(6):
        x = torch.randn(8, 6)
        x[2] *= step != 3
        grads, _ = torch.func.grad_and_value(loss)(named, x)
        named = {name: p - 1e-2 * grads[name] for name, p in named.items()}
    log(*named.values())


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_in_a_bare_pass_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op, issue.step) == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    assert where.line in lines_of(run), issue.message


@healthy
def a_sampler_that_rejects_proposals(log):
    position = torch.ones(3)

    def energy(at):
        return at.sum() - torch.log(at).sum()

    for step in range(8):
        proposal, speed = position.clone(), torch.randn(3)
        for _ in range(3):
            at = proposal.detach().requires_grad_()
            (g,) = torch.autograd.grad(energy(at), at)
            speed = speed - (0.9 if step % 3 == 1 else 0.1) * g
            proposal = at.detach() + 0.9 * speed
        if torch.isfinite(energy(proposal)):
            position = proposal
    log(position)


@healthy
def a_bad_step_that_the_program_leaves_out(log):
    w = weights()
    for step in range(6):
        x = torch.randn(8, 6)
        x[3] *= step != 3
        (g,) = torch.autograd.grad(root_of_squares(w, x), w)
        if torch.isfinite(g).all():
            w = (w - 1e-2 * g).detach().requires_grad_()
    log(w)


@healthy
def a_derivative_for_a_log_line(log):
    w = weights()
    for step in range(6):
        (g,) = torch.autograd.grad((torch.randn(8, 6) @ w).pow(2).mean(), w)
        with torch.no_grad():
            w -= 1e-2 * g
        if step == 3:
            zero = torch.zeros(3, requires_grad=True)
            log(*torch.autograd.grad((zero * 0).sqrt().sum(), zero))


@healthy
def derivatives_that_are_always_repaired(log):
    w = weights()
    for _ in range(6):
        x = torch.randn(8, 6)
        x[3] = 0
        (g,) = torch.autograd.grad(root_of_squares(w, x), w)
        w = (w - 1e-2 * g.nan_to_num(0.0)).detach().requires_grad_()
    log(w)


@healthy
def a_line_search_over_the_edge(log):
    w = torch.tensor([4.0], requires_grad=True)
    for _ in range(5):
        (g,) = torch.autograd.grad((w - torch.log(w)).sum(), w)
        size = 8.0
        while True:
            candidate = (w - size * g).detach().requires_grad_()
            value = (candidate - torch.log(candidate)).sum()
            torch.autograd.grad(value, candidate)
            if value <= (w - torch.log(w)).sum():
                break
            size /= 2
        w = candidate
    log(w)


@healthy
def a_gradient_penalty_before_the_first_step(log):
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(critic.parameters())
    for _ in range(3):
        x = torch.randn(8, 4).requires_grad_()
        optimizer.zero_grad()
        log(*torch.autograd.grad((critic(x) * math.nan).sum(), x, retain_graph=True))
        (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        ((g.norm(dim=-1) - 1) ** 2).mean().backward()
        optimizer.step()


@healthy
def products_with_second_derivatives(log):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    parameters = list(model.parameters())
    for _ in range(3):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        along = sum((g * torch.randn_like(g)).sum() for g in grads)
        log(*torch.autograd.grad(along, parameters, allow_unused=True, materialize_grads=True))
    log(torch.func.hessian(lambda x: (x**3).sum())(torch.randn(3)))


@pytest.mark.parametrize("run", HEALTHY)
def test_a_bare_pass_that_is_meant_is_no_alarm(loud_issues_of, run):
    assert not [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM")]
