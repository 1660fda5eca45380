"""Which loss fights which."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import nabla
from nabla_core.errors import UsageError


def rules_of(result):
    return sorted({issue.rule for issue in result.issues})


@pytest.fixture
def trunk():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()


@pytest.fixture
def loss(trunk):
    return trunk(torch.randn(16, 4).double()).square().mean()


def test_a_loss_and_its_negative(trunk, loss):
    with nabla.trace.losses({"up": loss, "down": -loss}, parameters=trunk) as trace:
        (loss - loss).backward()

    report = trace.report()
    assert report.cosines["up", "down"] == pytest.approx(-1)
    assert report.cancellation == pytest.approx(1)
    assert rules_of(trace) == ["GEO101", "GEO102"]


def test_a_loss_and_its_double(trunk, loss):
    trace = nabla.trace.losses({"one": loss, "two": 2 * loss}, parameters=trunk)

    assert trace.report().cancellation == pytest.approx(0, abs=1e-12)
    assert trace.report().norms["two"] == pytest.approx(2 * trace.report().norms["one"])
    assert rules_of(trace) == []


def test_weights_are_those_of_the_total(trunk, loss):
    weights = {"up": 1.0, "down": 0.05}
    trace = nabla.trace.losses({"up": loss, "down": -loss}, parameters=trunk, weights=weights)

    assert trace.report().norms["down"] == pytest.approx(0.05 * trace.report().norms["up"])
    assert rules_of(trace) == []


def test_losses_of_different_parameters_have_no_cosine():
    left, right = nn.Linear(3, 1), nn.Linear(3, 1)
    x = torch.randn(8, 3)
    given = {"a": left(x).square().mean(), "b": right(x).square().mean()}
    trace = nabla.trace.losses(given, parameters=[left.weight, right.weight])

    assert trace.report().cosines["a", "b"] == pytest.approx(0)
    assert math.isnan(trace.report(left.weight).cosines["a", "b"])
    assert rules_of(trace) == []


def test_grams_are_those_of_one_backward_per_loss(trunk):
    shared = trunk[:2](torch.randn(16, 4).double())
    out = trunk[2](shared)
    given = {f"l{k}": (out - k).square().mean() for k in range(4)}
    leaves = [trunk[0].weight, trunk[0].bias]
    rows = [torch.autograd.grad(one, leaves, retain_graph=True) for one in given.values()]

    for options in ({}, {"shared": shared}):
        trace = nabla.trace.losses(given, parameters=leaves, level="layers", **options)
        for place, gram in enumerate(trace.layer_grams):
            flat = torch.stack([row[place].flatten() for row in rows])
            assert torch.allclose(gram, flat @ flat.T)
        assert torch.allclose(trace.gram, sum(trace.layer_grams))
    at_shared = nabla.trace.losses(given, shared=shared)
    assert at_shared.level == "representation" and at_shared.gram.shape == (4, 4)


def test_backward_of_the_user_is_the_same(trunk, loss):
    expected = torch.autograd.grad(loss, trunk[0].weight, retain_graph=True)[0]
    with nabla.trace.losses({"a": loss, "b": loss * loss}):
        assert trunk[0].weight.grad is None
        loss.backward()

    assert torch.equal(trunk[0].weight.grad, expected)


def test_latest_trace_answers_for_a_parameter(trunk, loss):
    nabla.trace.losses({"a": loss, "b": loss * loss}, parameters=trunk)

    assert nabla.trace.gradient(trunk[0].weight, name="first").name == "first"
    with pytest.raises(UsageError, match="not traced"):
        nabla.trace.gradient(nn.Parameter(torch.ones(1)))


def test_small_parameters_do_not_make_a_conflict():
    wide, bias = nn.Parameter(torch.ones(400)), nn.Parameter(torch.ones(2))
    given = {"a": wide.sum() + bias.sum() * 0.5, "b": wide.sum() - bias.sum() * 0.5}
    trace = nabla.trace.losses(given, parameters=[wide, bias])

    assert trace.report(bias).cosines["a", "b"] == pytest.approx(-1)
    assert rules_of(trace) == []


@pytest.mark.parametrize(("ratio", "expected"), [(8.0, ["GEO101"]), (12.0, [])])
def test_a_much_smaller_loss_is_no_opponent(ratio, expected, trunk, loss):
    trace = nabla.trace.losses({"a": ratio * loss, "b": -loss}, parameters=trunk)

    assert "GEO101" in rules_of(trace) if expected else "GEO101" not in rules_of(trace)


@pytest.mark.parametrize(("scale", "expected"), [(90.0, []), (1000.0, ["GEO103"])])
def test_dominance(scale, expected):
    weight = nn.Parameter(torch.ones(2))
    trace = nabla.trace.losses({"a": scale * weight[0], "b": weight[1]}, parameters=[weight])

    assert rules_of(trace) == expected


def test_a_loss_without_gradient(trunk, loss):
    trace = nabla.trace.losses({"fit": loss, "reg": loss.detach()}, parameters=trunk)

    assert rules_of(trace) == ["GEO105"]
    assert math.isnan(trace.report().cosines["fit", "reg"])


@pytest.mark.parametrize(("factor", "expected"), [(2.0, ["GEO104"]), (-0.5, [])])
def test_a_loss_that_paid_for_another(factor, expected):
    weight = nn.Parameter(torch.tensor(1.0))

    def compute():
        return {"a": 10 * weight.square(), "b": 1 + factor * (1 - weight)}

    optimizer = torch.optim.SGD([weight], 0.04)
    with nabla.trace.losses(compute(), recompute=compute) as trace:
        sum(compute().values()).backward()
        optimizer.step()

    assert trace.level == "progress" and trace.changes["a"] < 0
    assert rules_of(trace) == expected


def test_progress_without_recompute_is_not_evaluated(loss):
    with nabla.trace.losses({"a": loss}, level="progress") as trace:
        loss.backward()

    assert "not evaluated" in trace.format()


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({}, {}, "at least one"),
        ({"a": torch.ones(2)}, {}, "scalar"),
        ({"a": torch.ones(())}, {"weights": {"b": 1.0}}, "needs a finite factor"),
        ({"a": torch.ones(())}, {"level": "representation"}, "shared="),
        ({"a": torch.ones(())}, {"parameters": [torch.ones(2)]}, "requires_grad"),
    ],
)
def test_impossible_requests(given, options, message):
    with pytest.raises(UsageError, match=message):
        nabla.trace.losses(given, **options)


RESIDUAL = """
import torch
from torch import nn
torch.manual_seed(0)
enc, dec, aux = nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(8, 8)
net = nn.ModuleList([enc, dec, aux])
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
data = torch.randn(150, 32, 4) @ torch.randn(4, 8)
for x in data:
    reconstruction = dec(enc(x))
    residual = (x - reconstruction){detach}
    guess = 1 + 0.1 * torch.tanh(aux(x))
    loss = (x - reconstruction).square().mean() + (guess - residual).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("detach", "expected"), [("", ["GEO101"]), (".detach()", [])])
def test_live_loop_with_an_auxiliary_loss_on_the_residual(detach, expected, tmp_path, monkeypatch):
    guard = pytest.importorskip("nabla_guard")
    from nabla_core.session import Session

    (tmp_path / "nabla.toml").write_text('select = ["GEO"]')
    monkeypatch.chdir(tmp_path)
    session = Session()
    with session, guard.watch_process(session):
        exec(compile(RESIDUAL.format(detach=detach), "program", "exec"), {})

    assert [issue.rule for issue in session.finish().issues] == expected


def test_two_targets_for_one_prediction_are_a_compromise():
    from nabla_trace.live.loss_graph import addends_of, shared_residual

    model, x, a, b = nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 2), torch.randn(4, 2)
    out = model(x)
    edges = addends_of(F.mse_loss(out, a) + (out - b).square().mean() * 0.5)

    assert len(edges) == 2
    assert not any(shared_residual(p, q) for p in edges for q in edges if p is not q)


def test_scalar_empty_and_complex_parameters_are_like_any_other():
    torch.manual_seed(0)
    leaves = [
        torch.randn(4, 3, dtype=torch.complex128, requires_grad=True),
        torch.tensor(2.0, dtype=torch.float64, requires_grad=True),
        torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),
    ]
    out = (torch.randn(5, 4, dtype=torch.complex128) @ leaves[0]) * leaves[1] + leaves[2].sum()
    given = {"size": out.abs().square().mean(), "real": out.real.sum(), "other": out.imag.sum()}
    with nabla.trace.losses(given, parameters=leaves) as trace:
        pass

    rows = []
    for loss in given.values():
        grads = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
        known = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, leaves)]  # noqa: B905
        real = [torch.view_as_real(g) if g.is_complex() else g for g in known]
        rows.append(torch.cat([g.flatten() for g in real]))
    truth = torch.stack(rows) @ torch.stack(rows).T
    assert torch.allclose(trace.gram, truth, rtol=1e-12)

    at_scalar = nabla.trace.losses(given, shared=leaves[1], level="representation")
    assert at_scalar.gram.shape == (3, 3) and bool((at_scalar.gram.diagonal() > 0).any())


class Branches(nn.Module):
    """A wide weight that is used once, one that is used twice, and one that a hook doubles."""

    def __init__(self):
        super().__init__()
        self.once, self.twice = nn.Linear(60, 50), nn.Linear(50, 50, bias=False)
        self.hooked = nn.Linear(50, 40)
        self.hooked.weight.register_hook(lambda grad: 2 * grad)

    def forward(self, x):
        hidden = torch.tanh(self.once(x))
        return self.hooked(self.twice(torch.tanh(self.twice(hidden))))


@pytest.mark.parametrize("parts", [False, True])
def test_wide_weights_without_their_gradients(parts):
    model = Branches().double()
    shared = model(torch.randn(6, 60).double())
    given = {"a": shared.square().mean(), "b": shared.sin().sum(), "none": torch.tensor(1.0)}
    centred = shared - shared.detach().mean(0)
    given["cancels"] = (centred.sum(0) * shared.detach().mean(0)).sum()
    leaves = dict(model.named_parameters())

    found = nabla.trace.losses(given, model, shared=shared if parts else None, level="layers")

    for name, leaf in leaves.items():
        rows = [
            torch.autograd.grad(loss, leaf, retain_graph=True)[0].flatten()
            if loss.requires_grad
            else torch.zeros(leaf.numel()).double()
            for loss in given.values()
        ]
        truth = torch.stack(rows) @ torch.stack(rows).T
        assert torch.allclose(found.layers[name], truth, atol=1e-12 * float(truth.max()))
    shared.sum().backward()  # the graph is still there


def test_a_checkpointed_block_is_run_again_once_per_pass():
    runs = []

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(60, 60), nn.Linear(60, 60)

        def forward(self, x):
            runs.append(x)
            return torch.tanh(self.outer(torch.tanh(self.inner(x))))

    block = Block()
    out = checkpoint(block, torch.randn(3, 60), use_reentrant=False)
    nabla.trace.losses({"a": out.square().mean(), "b": out.sin().sum()}, block, level="layers")

    assert len(runs) == 2
