"""AUD203 and AUD204: parameters in no module, and parameters before a cut."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def rules(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


@pytest.fixture
def trained(audited, batches):
    def run(make, optimize=None):
        def program():
            model = make()
            held = model.parameters() if optimize is None else optimize(model)
            optimizer = torch.optim.Adam(held, 1e-2)
            for x, y in batches(6):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

        return audited(program)

    return run


class Net(nn.Module):
    """An encoder and a head; subclasses say what happens between them."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 24)
        self.head = nn.Linear(24, 3)

    def between(self, hidden):
        return hidden.relu()

    def forward(self, x):
        return self.head(self.between(self.encoder(x)))


# ---------------------------------------------------------------- AUD203
class Listed(Net):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(24, 24) for _ in range(2)]

    def between(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden).relu()
        return hidden


class Mapped(Net):
    def __init__(self):
        super().__init__()
        self.gates = {"a": nn.Parameter(torch.ones(24)), "b": nn.Parameter(torch.randn(24))}

    def between(self, hidden):
        return hidden.relu() * self.gates["a"] + self.gates["b"]


@pytest.mark.parametrize(("make", "path"), [(Listed, "Listed.layers"), (Mapped, "Mapped.gates")])
def test_parameters_in_a_plain_container(trained, make, path):
    (issue,) = trained(make)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD203", "high", 2)
    assert issue.where.module == path


def test_a_parameter_of_the_surrounding_code(audited, net, batches):
    def program():
        scale, model = nn.Parameter(torch.ones(3)), net()
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x) * scale, y).backward()
            optimizer.step()

    assert rules(audited(program)) == [("AUD203", "high")]


class Registered(Listed):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(self.layers)


def test_registered_containers_are_silent(trained):
    assert trained(Registered) == []


def test_a_plain_list_that_is_optimized_is_silent(trained):
    def held(model):
        return [*model.parameters(), *(p for layer in model.layers for p in layer.parameters())]

    assert trained(Listed, held) == []


def test_a_perturbation_moved_by_hand_is_silent(audited, net, batches):
    def program():
        shift, model = nn.Parameter(torch.zeros(6)), net()
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x + shift), y).backward()
            optimizer.step()
            with torch.no_grad():
                shift += 0.01 * shift.grad.sign()
                shift.grad = None

    assert rules(audited(program)) == []


# ---------------------------------------------------------------- AUD204
class Detached(Net):
    def between(self, hidden):
        return hidden.relu().detach()


class Rebuilt(Net):
    def between(self, hidden):
        return torch.tensor(hidden.relu().tolist())


class ThroughData(Net):
    def between(self, hidden):
        return (hidden * 2).data.tanh()


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight):
        ctx.save_for_backward(weight)
        return hidden * weight

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


class Silent(Net):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(24))

    def between(self, hidden):
        return Half.apply(hidden, self.weight).relu()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (Detached, "cut by detach"),
        (ThroughData, "cut by data"),
        (Rebuilt, "by tolist"),
        (Silent, "custom backward returns None"),
    ],
)
def test_a_cut_in_the_graph(trained, make, word):
    (issue,) = trained(make)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD204", "high", 2)
    assert word in issue.message


def test_the_verdict_names_both_sides_of_the_cut(trained):
    (issue,) = trained(Detached)
    assert issue.evidence["first_dead_module"] == "Detached.encoder"
    assert issue.evidence["last_live_module"] == "Detached.head"
    assert issue.where.function == "between"


class Frozen(Net):
    def forward(self, x):
        with torch.no_grad():
            hidden = self.encoder(x)
        return self.head(hidden.relu())


class Unused(Net):
    def __init__(self):
        super().__init__()
        self.pooler = nn.Linear(24, 24)


class Straight(Net):
    def between(self, hidden):
        return hidden + (hidden.round() - hidden).detach()


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (Frozen, [("AUD204", "info")]),
        (Unused, [("AUD204", "info")]),
        (Straight, []),
        (Net, []),
    ],
)
def test_what_may_be_meant_is_no_fault(trained, make, found):
    assert rules(trained(make)) == found


def test_the_mode_that_follows_values_is_gone_afterwards(trained):
    trained(Detached)
    assert torch.overrides._get_current_function_mode() is None


def test_gradients_that_are_used_up_inside_backward_are_silent(audited, net, batches):
    def program():
        model = net()
        optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}

        def use(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(use)
        for x, y in batches(8):
            F.cross_entropy(model(x), y).backward()

    assert [issue for issue in audited(program) if issue.severity.label != "info"] == []
