"""Samples that act on each other, losses that weigh them, and runs that change a model."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla

SAMPLES = 7


class Mixed(nn.Module):
    """Two layers, with something between them."""

    def __init__(self, between):
        super().__init__()
        self.first, self.last, self.between = nn.Linear(4, 5), nn.Linear(5, 3), between

    def forward(self, x):
        return self.last(self.between(torch.tanh(self.first(x))))


def by_length(values):
    return values[values.detach()[:, 0].argsort()]


def with_another(values):
    return values + values.roll(1, 0)[torch.randperm(len(values))]


BETWEEN = {
    "normalised over the batch": lambda h: (h - h.mean(0)) / h.std(0),
    "in another order": by_length,
    "mixed with another": with_another,
}


def contrast(output):
    unit = F.normalize(output, dim=1)
    alike = unit @ unit.T / 0.5 - 1e3 * torch.eye(len(unit), dtype=unit.dtype)
    return F.cross_entropy(alike, torch.arange(len(unit)).roll(1), reduction="none")


def data(classes=3):
    return torch.randn(SAMPLES, 4).double(), torch.randint(classes, (SAMPLES,))


def codes(result):
    return {issue.rule for issue in result.issues if issue.rule.startswith("GEO9")}


@pytest.mark.parametrize("between", BETWEEN)
def test_what_has_no_effect_on_two_samples_is_seen_in_the_whole_batch(between, truth):
    """Given alone, two samples are normalised to constants, or come back where they were."""
    model, (x, y) = Mixed(BETWEEN[between]).double(), data()
    rows = truth.rows(model, truth.loss, x, y)

    result = nabla.trace.samples(model, truth.loss, (x, y))

    assert truth.error(result.gram, rows @ rows.T) <= 1e-12
    assert "GEO903" in codes(result)


def test_a_loss_that_compares_samples_is_found_sample_by_sample(mlp, truth):
    x = torch.randn(SAMPLES, 6).double()
    rows = truth.rows(mlp, lambda output, _: contrast(output), x, None)

    result = nabla.trace.samples(mlp, contrast, x)

    assert truth.error(result.gram, rows @ rows.T) <= 1e-12


@pytest.mark.parametrize("between", BETWEEN)
def test_of_a_mean_loss_coupled_parameters_are_left_out(between):
    model, batch = Mixed(BETWEEN[between]).double(), data()
    result = nabla.trace.samples(model, nn.CrossEntropyLoss(), batch)
    assert "first.weight" in result.missing and "GEO901" in codes(result)


@pytest.mark.parametrize("between", BETWEEN)
def test_a_look_at_coupled_samples_is_skipped(between):
    model, (x, y) = Mixed(BETWEEN[between]).double(), data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with nabla.trace.attach(model, optimizer) as trace:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert "input of another" in trace.skipped[0] and not trace.failed


@pytest.mark.parametrize("time_major", ["summed up", "a column per sample"])
def test_a_look_finds_samples_on_the_second_axis(time_major):
    layer, y = nn.Linear(4, 3).double(), torch.randint(3, (SAMPLES,))
    x, model = torch.randn(5, SAMPLES, 4).double(), Mixed(lambda h: h.mean(0)).double()
    if time_major == "a column per sample":
        x, model = torch.randn(4, SAMPLES).double(), Columns(layer)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with nabla.trace.attach(model, optimizer, every=2) as trace:
        for _ in range(4):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    loss = nn.CrossEntropyLoss(reduction="none")
    expected = nabla.trace.samples(model, loss, (x, y)).gram
    assert trace.looks == [2] and "axis 1" in trace.skipped[0]
    assert torch.allclose(trace.gram, expected, rtol=1e-10)


class Columns(nn.Module):
    """A layer over columns."""

    def __init__(self, layer):
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().clone())

    def forward(self, x):
        return (self.weight @ x).T


def valid_mean(output, target):
    return F.cross_entropy(output, torch.where(target == 0, -100, target))


WEIGHED = {
    "class weights": nn.CrossEntropyLoss(torch.tensor([1.0, 5.0, 0.2]).double()),
    "ignored targets": valid_mean,
    "root of a mean": lambda o, t: F.mse_loss(o, F.one_hot(t, 3).double()).sqrt(),
    "compared samples": lambda o, t: contrast(o).mean(),
}


@pytest.mark.parametrize("name", WEIGHED)
def test_a_loss_that_is_no_mean_of_its_parts_is_said_to_be_none(name, mlp):
    x, y = torch.randn(SAMPLES, 6).double(), torch.tensor([0, 1, 2, 1, 1, 2, 0])
    result = nabla.trace.samples(mlp, WEIGHED[name], (x, y))
    assert codes(result) == {"GEO902"} and result.reduction == "unknown"


PLAIN = {
    "mean": (nn.CrossEntropyLoss(), "mean"),
    "smooth": (nn.CrossEntropyLoss(label_smoothing=0.1), "mean"),
    "scaled": (lambda o, t: F.cross_entropy(o, t) / 4, "mean"),
    "weighted sum": (
        nn.CrossEntropyLoss(torch.tensor([1.0, 5.0, 0.2]), reduction="sum"),
        "sum",
    ),
    "batch mean": (
        lambda o, t: F.kl_div(o.log_softmax(1), F.one_hot(t, 3).float(), reduction="batchmean"),
        "mean",
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_mean_or_sum_is_known_as_such_in_single_precision(name, mlp):
    loss, reduction = PLAIN[name]
    x, y = torch.randn(64, 6), torch.randint(3, (64,))
    result = nabla.trace.samples(mlp.float(), loss, (x, y))
    assert not codes(result) and result.reduction == reduction


def closure(reduction):
    return lambda output, target: F.cross_entropy(output, target, reduction=reduction)


@pytest.mark.parametrize("make", [closure, lambda kind: nn.CrossEntropyLoss(reduction=kind)])
def test_a_loss_is_not_taken_for_an_earlier_one(make, mlp, truth):
    """Given losses that live for one call, as their code or their address is the same."""
    x, y = torch.randn(SAMPLES, 6).double(), torch.randint(3, (SAMPLES,))
    rows = truth.rows(mlp, truth.loss, x, y)
    for kind in ("mean", "sum", "mean", "none", "sum"):
        result = nabla.trace.samples(mlp, make(kind), (x, y))
        assert result.reduction == kind
        assert truth.error(result.gram, rows @ rows.T) <= 1e-12


class Running(nn.Module):
    """Subtracts a running mean that each run updates."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        values = self.layer(x)
        self.mean.mul_(0.5).add_(values.detach().mean(0), alpha=0.5)
        return (values - self.mean) * self.mean


STATEFUL = {
    "running mean": Running,
    "power iteration": lambda: nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Linear(5, 3)
    ),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_every_run_begins_with_the_same_buffers(name, truth):
    model, (x, y) = STATEFUL[name]().double(), data()
    rows = truth.rows(model, truth.loss, x, y)
    result = nabla.trace.samples(model, truth.loss, (x, y))
    assert truth.error(result.gram, rows @ rows.T) <= 1e-12


def test_a_table_that_is_scaled_in_place_is_left_as_it_was():
    def run(attached):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(10, 4, max_norm=1.0), nn.Flatten(), nn.Linear(8, 3))
        before = model[0].weight.detach().clone()
        if not attached:
            nabla.trace.samples(model, nn.CrossEntropyLoss(), (tokens, y))
            assert torch.equal(model[0].weight, before)
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        what = ("samples", "step") if attached else ("signal",)
        with nabla.trace.attach(model, optimizer, every=1, what=what):
            for _ in range(3):
                F.cross_entropy(model(tokens), y).backward()
                optimizer.step()
        return model[0].weight

    tokens, y = torch.randint(10, (SAMPLES, 2)), torch.randint(3, (SAMPLES,))
    assert torch.equal(run(True), run(False))


@pytest.mark.parametrize("kind", ["none", "mean"])
def test_a_sample_that_is_not_finite_is_named_and_the_others_are_right(kind, mlp, truth):
    x, y = torch.randn(SAMPLES, 6).double(), torch.randint(3, (SAMPLES,))
    rows = truth.rows(mlp, truth.loss, x, y)
    x[3, 2] = float("nan")

    result = nabla.trace.samples(mlp, nn.CrossEntropyLoss(reduction=kind), (x, y))

    (said,) = [issue for issue in result.issues if issue.rule.startswith("GEO9")]
    assert (said.rule, said.where.sample) == ("GEO901", 3)
    others = torch.arange(SAMPLES) != 3
    right = rows[others] @ rows[others].T
    assert truth.error(result.gram[others][:, others], right) <= 1e-12
    assert result.gram[3].isnan().all()


def test_a_look_at_a_gradient_that_is_not_finite_says_so(mlp):
    optimizer = torch.optim.SGD(mlp.parameters(), 0.1)
    x, y = torch.full((SAMPLES, 6), torch.nan).double(), torch.randint(3, (SAMPLES,))
    with nabla.trace.attach(mlp, optimizer) as trace:
        F.cross_entropy(mlp(x), y).backward()
        optimizer.step()
    assert trace.skipped == {0: "the gradient of this step is not finite"}


def test_the_report_says_how_many_steps_were_seen(mlp):
    optimizer = torch.optim.SGD(mlp.parameters(), 0.1)
    x, y = torch.randn(SAMPLES, 6).double(), torch.randint(3, (SAMPLES,))
    with nabla.Session() as session, nabla.trace.attach(mlp, optimizer):
        for _ in range(3):
            F.cross_entropy(mlp(x), y).backward()
            optimizer.step()
    assert session.finish().run.steps == 3


class Recurrent(nn.Module):
    """Time-major, with an output at every step."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.RNN(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.cell(x)[0])


def test_steps_of_time_are_not_taken_for_samples():
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(6, SAMPLES, 4), torch.randint(3, (6, SAMPLES))
    with nabla.trace.attach(model, optimizer) as trace:
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    assert not trace.looks and "input of another" in trace.skipped[0]


def test_parts_of_the_batch_compile_nothing():
    """Else the person's own calls would be compiled again, for shapes that vary."""
    compiled = []

    def counting(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch.compiler.reset()
    model = torch.compile(nn.Linear(4, 3), backend=counting)
    x, y = torch.randn(SAMPLES, 4), torch.randint(3, (SAMPLES,))
    model(x)
    result = nabla.trace.samples(model, nn.CrossEntropyLoss(), (x, y))
    model(x)
    assert len(compiled) == 1 and not codes(result)
