"""AUD206 and AUD207 in real programs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def found(issues):
    return [(issue.rule, issue.step) for issue in issues if issue.severity.label != "info"]


def net(outputs=3):
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, outputs))


def loop(modules, loss_of, steps=6):
    """A plain loop over the parameters of some modules."""

    def program():
        parameters = [p for module in modules for p in module.parameters()]
        optimizer = torch.optim.SGD(parameters, 0.05)
        for _ in range(steps):
            x = torch.randn(16, 6)
            loss = loss_of(x, x[:, :3].argmax(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return program


def test_a_penalty_of_detached_weights(audited):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.values = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            weights = self.mix(x)
            self.penalty = weights.detach().pow(2).mean()
            return weights * self.values(x)

    model = Net()

    def loss_of(x, y):
        return F.cross_entropy(model(x), y) + 5.0 * model.penalty

    issues = audited(loop([model], loss_of))
    assert found(issues) == [("AUD206", 2)]
    assert issues[0].evidence["cut_by"] == "detach"


def test_a_penalty_under_no_grad_in_a_trainer(audited):
    class Trainer:
        def __init__(self):
            self.model = net()
            self.optimizer = torch.optim.Adam(self.model.parameters())

        @torch.no_grad()
        def penalty(self):
            return torch.stack([p.abs().sum() for p in self.model.parameters()]).sum()

        def training_step(self, x, y):
            return (F.cross_entropy(self.model(x), y) + 1e-3 * self.penalty()) / 2

        def train(self):
            for _ in range(5):
                for _ in range(2):
                    x = torch.randn(16, 6)
                    self.training_step(x, x[:, :3].argmax(-1)).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()

    issues = audited(lambda: Trainer().train())
    assert found(issues) == [("AUD206", 2)]
    assert issues[0].evidence["cut_by"] == "no_grad"


def test_a_penalty_of_data(audited):
    model = net()

    def loss_of(x, y):
        return F.cross_entropy(model(x), y) + 0.1 * model[0].weight.data.norm()

    assert found(audited(loop([model], loss_of))) == [("AUD206", 2)]


def healthy_losses(model, teacher):
    def weighted_penalty(x, y):
        return F.cross_entropy(model(x), y) + 0.1 * model[0].weight.norm()

    def surrogate(x, y):
        loss = model(x).pow(2).mean()
        return loss - loss.detach() + F.cross_entropy(model(x), y).detach()

    def adversarial(x, y):
        out = model(x)
        p = out.detach().softmax(1)
        q = model(x + 0.1).log_softmax(1)
        entropy = (p * p.log()).sum(1).mean()
        return F.cross_entropy(out, y) + entropy - (p * q).sum(1).mean()

    def of_a_teacher(x, y):
        with torch.no_grad():
            q = teacher(x).softmax(1)
        entropy = (q * q.log()).sum(1).mean()
        return entropy - (q * model(x).log_softmax(1)).sum(1).mean()

    def target(x, y):
        return F.mse_loss(model(x), model(x).detach() * 0.9) + x.mean()

    def ones(x, y):
        out = model(x)
        return F.mse_loss(out, torch.ones_like(out)) + torch.zeros_like(out).sum()

    return [weighted_penalty, surrogate, adversarial, of_a_teacher, target, ones]


@pytest.mark.parametrize("index", range(6))
def test_terms_without_gradient_that_are_meant(audited, index):
    model = net()
    loss_of = healthy_losses(model, net())[index]
    assert [rule for rule, _ in found(audited(loop([model], loss_of))) if rule == "AUD206"] == []


def test_a_rounded_code(audited):
    encoder, decoder = nn.Linear(6, 8), nn.Linear(8, 3)

    def loss_of(x, y):
        return F.cross_entropy(decoder(torch.round(encoder(x))), y)

    issues = audited(loop([encoder, decoder], loss_of))
    assert ("AUD207", 2) in found(issues)


def test_a_sign_inside_a_module(audited):
    class Binary(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.decoder(self.encoder(x).sign())

    model = Binary()

    def program():
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(5):
            x = torch.randn(16, 6)

            def closure(x=x):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), x[:, :3].argmax(-1))
                loss.backward()
                return loss

            optimizer.step(closure)

    assert ("AUD207", 2) in found(audited(program))


def test_a_straight_through_estimator_is_lawful(audited):
    encoder, decoder = nn.Linear(6, 8), nn.Linear(8, 3)

    def loss_of(x, y):
        z = encoder(x)
        return F.cross_entropy(decoder(z + (z.round() - z).detach()), y)

    assert audited(loop([encoder, decoder], loss_of)) == []


def curvature(model, points):
    points = points.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    (bend,) = torch.autograd.grad(
        slope.sum(), points, create_graph=True, allow_unused=True, materialize_grads=True
    )
    return (bend + points.sin()).pow(2).mean()


def physics(activation):
    model = nn.Sequential(nn.Linear(6, 16), activation, nn.Linear(16, 1))

    def loss_of(x, y):
        return curvature(model, x) + model(x).pow(2).mean()

    return loop([model], loss_of)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.LeakyReLU(0.1)])
def test_a_second_derivative_of_a_piecewise_linear_net(audited, activation):
    assert ("AUD207", 2) in found(audited(physics(activation)))


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softplus()])
def test_a_second_derivative_of_a_smooth_net_is_lawful(audited, activation):
    assert audited(physics(activation)) == []


def test_training_with_the_function_mode_is_bit_identical(audited):
    def train():
        torch.manual_seed(1)
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(6):
            x = torch.randn(16, 6)
            loss = F.cross_entropy(F.dropout(model(x), 0.2), x[:, :3].argmax(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain, watched = train(), []
    audited(lambda: watched.extend(train()))
    assert plain == watched
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(("both", "found"), [(True, ["AUD207"]), (False, [])])
def test_an_adapter_needs_one_factor_that_is_not_zero(audited, both, found):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.up = nn.Linear(6, 3), nn.Parameter(torch.zeros(3, 2))
            self.down = nn.Parameter(torch.zeros(2, 6) if both else torch.randn(2, 6))

        def forward(self, x):
            return self.body(x) + x @ self.down.T @ self.up.T

    def program():
        model = Adapted()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(6):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()

    assert [issue.rule for issue in audited(program)] == found
