"""What is said of the samples of a batch, and what is left as it was."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.errors import UsageError
from nabla_core.severity import Severity


def rules_of(result):
    return [issue.rule for issue in result.issues]


def product(output):
    return output.sum(1)


def line(values):
    """One weight; the gradient of a sample is its input."""
    model = nn.Linear(1, 1, bias=False).double()
    return nabla.trace.samples(model, product, torch.tensor(values).double()[:, None])


def wide(samples=12, width=40):
    model = nn.Linear(width, 1, bias=False).double()
    return model, torch.randn(samples, width).double()


def test_known_numbers_of_a_line():
    result = line([1.0, 2.0, -1.0, 2.0])

    assert result.norms.tolist() == pytest.approx([1, 2, 1, 2])
    assert result.share.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 6, 1 / 3])
    assert result.cancellation == pytest.approx(1 - 4 / 6)
    assert result.cosines[0].tolist() == pytest.approx([1, 1, -1, 1])
    assert result.leave_one_out.tolist() == pytest.approx([1, 1, -1, 1])
    assert result.rank("leave-one-out")[0] == 2


def test_zero_gradient_has_no_cosine():
    result = line([0.0, 1.0, 2.0, 3.0])

    assert bool(result.cosines[0, 1].isnan())
    assert result.norms[0] == 0


def test_gram_identities():
    model, x = wide()
    model = nn.Sequential(model, nn.Tanh())
    gram = nabla.trace.samples(model, product, x).gram
    order = torch.randperm(len(x))

    assert float(torch.linalg.eigvalsh(gram).min()) > -1e-12
    permuted = nabla.trace.samples(model, product, x[order]).gram
    assert torch.allclose(permuted, gram[order][:, order])
    scaled = nabla.trace.samples(model, lambda out: 3 * product(out), x).gram
    assert torch.allclose(scaled, 9 * gram)


@pytest.mark.parametrize(("scale", "expected"), [(6.0, []), (1000.0, ["GEO201"])])
def test_a_dominant_sample(scale, expected):
    model, x = wide()
    x[3] *= scale
    result = nabla.trace.samples(model, product, x)

    assert rules_of(result) == expected
    assert result.rank()[0] == 3


@pytest.mark.parametrize(("height", "expected"), [(2.0, ["GEO202"]), (-2.0, [])])
def test_a_sample_against_all_others(height, expected):
    x = 0.05 * torch.randn(12, 40).double() + 1
    x[5] = -height * 1.5
    model, _ = wide()

    assert rules_of(nabla.trace.samples(model, product, x)) == expected


@pytest.mark.parametrize(("away", "expected"), [(0.0, []), (1.0, ["GEO202"])])
def test_near_a_minimum_nobody_opposes(away, expected):
    """The sum of all gradients is zero there: each is against the sum of the others."""
    x = 0.3 * torch.randn(40, 3).double()
    noise = 0.1 * torch.randn(40, 1).double()
    noise[::4] *= 3
    x = torch.cat([x, torch.ones(40, 1).double()], 1)
    model = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(x, noise).solution.T)
        model.weight[0, 3] += away
    noise[5] += 40 * away
    result = nabla.trace.samples(model, lambda out, y: (out - y).square().sum(1), (x, noise))

    assert [rule for rule in rules_of(result) if rule == "GEO202"] == expected


@pytest.mark.parametrize(("distance", "expected"), [(0.0, ["GEO203"]), (0.05, [])])
def test_duplicates(distance, expected):
    model, x = wide()
    x[7] = x[2] + distance * torch.randn(40)

    assert rules_of(nabla.trace.samples(model, product, x)) == expected


def test_opposite_pairs_cancel():
    model, x = wide()
    result = nabla.trace.samples(model, product, torch.cat([x, -x]))

    assert "GEO205" in rules_of(result)
    assert result.cancellation == pytest.approx(1)
    assert "GEO205" not in rules_of(nabla.trace.samples(model, product, x))


def clusters(flipped):
    y = torch.arange(60) % 3
    x = 3 * torch.eye(3)[y] + 0.4 * torch.randn(60, 3)
    labels = y.clone()
    labels[list(flipped)] = (labels[list(flipped)] + 1) % 3
    return x, labels


@pytest.mark.parametrize("flipped", [(), (4, 17, 40)])
def test_label_suspects_are_the_flipped_ones(flipped):
    x, labels = clusters(flipped)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    loss = nn.CrossEntropyLoss(reduction="none")
    result = nabla.trace.samples(model, loss, (x, labels))

    found = [issue for issue in result.issues if issue.rule == "GEO204"]
    assert [set(issue.evidence["samples"].split(", ")) for issue in found] == (
        [{str(index) for index in flipped}] if flipped else []
    )
    assert set(result.rank("label")[: len(flipped)]) == set(flipped)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_every_reduction_gives_the_gradients_of_the_samples(reduction, mlp, truth):
    x, y = torch.randn(7, 6).double(), torch.randint(3, (7,))
    rows = truth.rows(mlp, truth.loss, x, y)

    result = nabla.trace.samples(mlp, nn.CrossEntropyLoss(reduction=reduction), (x, y))

    assert result.reduction == reduction
    assert truth.error(result.gram, rows @ rows.T) < 1e-12


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, left, right):
        return self.a(left) * self.b(right)


def batches():
    left, right, y = torch.randn(6, 4), torch.randn(6, 5), torch.randint(3, (6,))
    loss = nn.CrossEntropyLoss(reduction="none")
    return {
        "several inputs and targets": ((left, right, y), loss),
        "a tuple of inputs and targets": (((left, right), y), loss),
        "a mapping of inputs and targets": (({"left": left, "right": right}, y), loss),
        "a mapping": ({"left": left, "right": right, "labels": y}, loss),
        "no targets": ((left, right), lambda output: output.square().sum(1)),
    }


@pytest.mark.parametrize("name", batches())
def test_forms_of_batches(name):
    batch, loss = batches()[name]

    result = nabla.trace.samples(TwoInputs(), loss, batch)

    assert result.samples == 6
    assert not result.missing and float(result.gram.trace()) > 0


def test_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model[3].weight.register_hook(lambda grad: grad * 2)
    x, y = torch.randn(8, 6), torch.randint(3, (8,))
    loss = nn.CrossEntropyLoss()
    loss(model(x), y).backward()
    kept = [p.grad.clone() for p in model.parameters()]
    buffers = [(b, b.clone()) for b in model.buffers()]
    state, modes = torch.get_rng_state(), [m.training for m in model.modules()]
    pending = loss(model.eval()(x), y)
    model.train()

    nabla.trace.samples(model, loss, (x, y))

    pending.backward()  # the graph that the user holds is whole
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes
    assert all(b is c for b, (c, _) in zip(model.buffers(), buffers, strict=True))
    assert all(torch.equal(b, before) for b, before in buffers)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert len(kept) == 6


def test_dropout_is_the_one_of_the_step_and_is_said(truth):
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    x, y = torch.randn(8, 6).double(), torch.randint(3, (8,))
    state = torch.get_rng_state()
    total = truth.rows(model, truth.loss, x, y).sum(0)
    torch.set_rng_state(state)

    result = nabla.trace.samples(model, truth.loss, (x, y))

    assert result.batch_norm == pytest.approx(float(total.norm()))
    assert "GEO902" in rules_of(result)
    assert "GEO902" not in rules_of(nabla.trace.samples(model.eval(), truth.loss, (x, y)))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.factor


def test_a_rule_of_a_third_party_is_used_and_checked(truth):
    class Own(Scale):
        pass

    @nabla.trace.rule_for(Own)
    def rows(module, args, kwargs, grad_out):
        return {"factor": grad_out * args[0] * rows.factor}

    model, x = nn.Sequential(nn.Linear(4, 4), Own(), nn.Linear(4, 3)).double(), torch.randn(6, 4)
    x, y = x.double(), torch.randint(3, (6,))
    expected = truth.rows(model, truth.loss, x, y)

    rows.factor = 1.0
    right = nabla.trace.samples(model, truth.loss, (x, y))
    assert right.coverage["1.factor"] == "Own" and "GEO903" not in rules_of(right)
    rows.factor = 1.5
    wrong = nabla.trace.samples(model.train(False), truth.loss, (x, y))

    assert "GEO903" in rules_of(wrong)
    for result in (right, wrong):
        assert truth.error(result.gram, expected @ expected.T) < 1e-12


def test_rule_for_needs_a_module():
    with pytest.raises(UsageError, match="subclass"):
        nabla.trace.rule_for(int)


def test_what_cannot_be_told_apart_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr("nabla_trace.ghost.study._LOOP_LIMIT", 10)
    model = nn.Linear(4, 4)

    def contrastive(output):
        return F.cross_entropy(output @ output.T, torch.arange(len(output)), reduction="none")

    result = nabla.trace.samples(model, contrastive, torch.randn(6, 4))

    assert result.gram is None and set(result.missing) == {"weight", "bias"}
    assert "GEO901" in rules_of(result)


def test_parameters_can_be_chosen(mlp):
    batch = (torch.randn(5, 6).double(), torch.randint(3, (5,)))
    loss = nn.CrossEntropyLoss(reduction="none")
    whole = nabla.trace.samples(mlp, loss, batch, every_layer=True)
    part = nabla.trace.samples(mlp, loss, batch, parameters=["2.*"])

    assert torch.allclose(part.gram, whole.layers["2.weight"] + whole.layers["2.bias"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "use one of"),
        ({"parameters": ["nothing.*"]}, "no trained parameter"),
        ({"budget_mb": 0}, "above zero"),
    ],
)
def test_impossible_requests(options, message, mlp):
    batch = (torch.randn(5, 6).double(), torch.randint(3, (5,)))
    with pytest.raises(UsageError, match=message):
        nabla.trace.samples(mlp, nn.CrossEntropyLoss(), batch, **options)


def test_complex_parameters_are_refused():
    model = nn.Linear(2, 2, dtype=torch.complex64)
    with pytest.raises(UsageError, match="complex"):
        nabla.trace.samples(model, lambda out: out.abs().sum(1), torch.randn(4, 2))


def test_result_prints_and_serialises(mlp):
    batch = (torch.randn(5, 6).double(), torch.randint(3, (5,)))
    result = nabla.trace.samples(mlp, nn.CrossEntropyLoss(), batch)

    assert "sample" in result.format() and "agrees" in result.format()
    assert result.to_dict()["samples"] == 5


def test_a_duplicate_is_an_equal_sample_and_not_only_an_equal_gradient():
    def found(rows):
        torch.manual_seed(0)
        model = nn.Linear(rows.shape[1], 1)
        issues = nabla.trace.samples(model, lambda out, y: (out - y[:, :1])[:, 0], (rows, rows))
        return [issue.severity for issue in issues.issues if issue.rule == "GEO203"]

    few = torch.randn(12, 3)
    assert found(torch.linspace(0, 1, 400)[:, None]) == [Severity.INFO]  # neighbours on a grid
    assert found(torch.cat([few, few[4:5]])) == [Severity.LOW]
    assert found(torch.cat([few, few])) == [Severity.INFO]  # few possible values
