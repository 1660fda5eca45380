"""Values that the program writes itself, in a module or in a hook: the writer is named."""

import inspect

import pytest
import torch
from torch import nn

import nabla

NAN = float("nan")


def times(x):
    return x * NAN


def one_element(x):
    x = x.clone()
    x.view(-1)[3] = NAN
    return x


def one_row(x):
    x = x.clone()
    x[2] = NAN
    return x


def where_it_is_large(x):
    x = x.clone()
    x[x > x.max() * 0.99] = NAN
    return x


def chosen(x):
    return torch.where(x > 0, x, torch.tensor(NAN))


def behind_the_graph(x):
    x.data[0] = NAN
    return x


def times_a_vector(x):
    return x * torch.tensor([1.0, NAN, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])


WRITERS = {
    times: "mul",
    one_element: "copy",
    one_row: "fill",
    where_it_is_large: "index_put",
    chosen: "where",
    behind_the_graph: "fill",
    times_a_vector: "tensor",
}


class Switch(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write
        self.on = False

    def forward(self, x):
        return self.write(x) if self.on else x


def line_of(write):
    lines, first = inspect.getsourcelines(write)
    return next(first + n for n, text in enumerate(lines) if "NAN" in text)


def first_verdict(model, switch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for step in range(12):
            switch(step == 8)
            loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.arange(16) % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return monitor.issues[0]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_module_that_writes_it_is_named(write):
    torch.manual_seed(0)
    odd = Switch(write)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), odd, nn.Tanh(), nn.Linear(8, 3))

    issue = first_verdict(model, lambda on: setattr(odd, "on", on))

    found = (issue.rule, issue.step, issue.where.module, issue.where.op, issue.where.line)
    assert found == ("NUM101", 8, "2", WRITERS[write], line_of(write))


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_the_module_whose_hook_writes_it_is_named(write):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    active = []
    model[1].register_forward_hook(lambda _, args, out: write(out) if active else None)

    issue = first_verdict(model, lambda on: active.append(1) if on else active.clear())

    found = (issue.rule, issue.step, issue.where.module, issue.where.op, issue.where.line)
    assert found == ("NUM101", 8, "1", WRITERS[write], line_of(write))


def test_a_written_infinity_that_masks_is_no_fault():
    torch.manual_seed(0)

    def masked(x):
        scores = x.clone()
        scores[:, 4:] = float("-inf")
        return scores.softmax(-1) + torch.where(x > 9, torch.tensor(float("inf")), x)

    odd = Switch(masked)
    model = nn.Sequential(nn.Linear(8, 8), odd, nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    odd.on = True

    with nabla.guard(model, optimizer=optimizer) as monitor:
        for _ in range(6):
            loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.arange(16) % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert [issue.rule for issue in monitor.issues if issue.severity > nabla.Severity.INFO] == []
