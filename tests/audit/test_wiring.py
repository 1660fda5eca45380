"""AUD201 and AUD202, over facts and in real programs."""

import copy

import pytest
import torch
from torch import nn

from nabla_audit.wiring import WiringDetector
from nabla_guard.facts import ModuleFacts, OptimizerFacts, ParameterFacts


def named(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def situation(**changes):
    """A root with one trained and one left-out parameter, before the third step."""
    optimizer = OptimizerFacts(name="Adam", steps=2)
    root = ModuleFacts(name="Net", trained_calls=1)
    trained = ParameterFacts(
        name="body.weight", root=root, running=True, writes=3, optimizers=[optimizer]
    )
    left = {"name": "head.weight", "root": root, "shape": (8, 8), "running": True, "writes": 3}
    left_out = ParameterFacts(**(left | {"nonzero_writes": 3, "fresh": True} | changes))
    optimizer.parameters = [trained]
    root.parameters = [trained, left_out]
    return optimizer, [trained, left_out], [root]


def judged(fake_facts, judge, optimizer, parameters, modules):
    return judge(WiringDetector(fake_facts(optimizer, parameters, modules)), 1)


def test_a_fresh_parameter_that_nobody_holds(fake_facts, judge):
    assert judged(fake_facts, judge, *situation()) == [("AUD201", 0)]


@pytest.mark.parametrize(
    "changes",
    [
        {"nonzero_writes": 2},
        {"trainable": False},
        {"moved": True},
        {"ever_held": True},
        {"running": False},
        {"is_parameter": False},
    ],
)
def test_what_is_not_left_out_is_silent(fake_facts, judge, changes):
    assert judged(fake_facts, judge, *situation(**changes)) == []


@pytest.mark.parametrize("changes", [{"fresh": False}, {"fresh": None}, {"loaded": True}])
def test_what_may_be_left_out_on_purpose_is_information(fake_facts, changes):
    from nabla_core.records import StepRecord

    optimizer, parameters, modules = situation(**changes)
    detector = WiringDetector(fake_facts(optimizer, parameters, modules))
    (issue,) = detector.step(StepRecord(step=2, time_s=0.0))
    assert issue.severity.label == "info"


@pytest.mark.parametrize("steps", [0, 1, 3, 9])
def test_wiring_is_judged_at_the_third_step_only(fake_facts, judge, steps):
    optimizer, parameters, modules = situation()
    optimizer.steps = steps
    assert judged(fake_facts, judge, optimizer, parameters, modules) == []


# ---------------------------------------------------------------- programs
class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, optimizer, data, entropy):
    for x, y in data:
        optimizer.zero_grad()
        model.zero_grad()
        entropy(model(x), y).backward()
        optimizer.step()


def test_a_head_outside_the_optimizer(audited, batches, entropy):
    def program():
        model = Split()
        optimizer = torch.optim.Adam(model.body.parameters())
        train(model, optimizer, batches(), entropy)

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD201", "high", 2)
    assert "head.weight" in issue.message


def test_a_second_model_outside_the_optimizer(audited, batches, entropy):
    def program():
        encoder, decoder = nn.Sequential(nn.Linear(6, 24), nn.ReLU()), nn.Linear(24, 3)
        optimizer = torch.optim.Adam(encoder.parameters())
        for x, y in batches():
            optimizer.zero_grad()
            entropy(decoder(encoder(x)), y).backward()
            optimizer.step()

    assert named(audited(program)) == [("AUD201", "high")]


def test_an_optimizer_made_before_the_guard_counts(audited, batches, entropy):
    model = Split()
    body = torch.optim.Adam(model.body.parameters())
    head = torch.optim.Adam(model.head.parameters())

    def program():
        for x, y in batches():
            body.zero_grad()
            head.zero_grad()
            entropy(model(x), y).backward()
            body.step()
        head.step()

    assert audited(program) == []


@pytest.mark.parametrize("how", ["replaced", "copied"])
def test_an_optimizer_of_another_object(audited, net, batches, entropy, how):
    def program():
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        if how == "copied":
            model = copy.deepcopy(model)
        else:
            model[2] = nn.Linear(24, 3)
        train(model, optimizer, batches(), entropy)

    assert named(audited(program)) == [("AUD202", "high")]


def frozen_body(model, data, entropy):
    model.body.requires_grad_(False)
    train(model, torch.optim.Adam(model.head.parameters()), data, entropy)


def all_parameters(model, data, entropy):
    train(model, torch.optim.Adam(model.parameters()), data, entropy)


def two_optimizers(model, data, entropy):
    pair = [torch.optim.Adam(part.parameters()) for part in (model.body, model.head)]
    for x, y in data:
        for optimizer in pair:
            optimizer.zero_grad()
        entropy(model(x), y).backward()
        for optimizer in pair:
            optimizer.step()


def unfreezing(model, data, entropy):
    model.body.requires_grad_(False)
    optimizer = torch.optim.SGD(model.head.parameters(), 0.05)
    for step, (x, y) in enumerate(data):
        if step == 5:
            model.body.requires_grad_(True)
            optimizer.add_param_group({"params": list(model.body.parameters())})
        optimizer.zero_grad()
        entropy(model(x), y).backward()
        optimizer.step()


def updated_by_hand(model, data, entropy):
    optimizer = torch.optim.SGD(model.head.parameters(), 0.05)
    for x, y in data:
        model.zero_grad()
        entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in model.body.parameters():
                parameter -= 0.05 * parameter.grad


def remade_optimizer(model, data, entropy):
    for rate in (0.1, 0.01):
        train(model, torch.optim.SGD(model.parameters(), rate), data[:5], entropy)


HEALTHY = [
    frozen_body,
    all_parameters,
    two_optimizers,
    unfreezing,
    updated_by_hand,
    remade_optimizer,
]


@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.__name__)
def test_healthy_wirings_are_silent(audited, batches, entropy, program):
    assert audited(lambda: program(Split(), batches(), entropy)) == []


def test_a_loaded_body_that_is_left_out_is_information(audited, batches, entropy):
    def program():
        model = Split()
        state = {f"body.{name}": value for name, value in Split().body.state_dict().items()}
        model.load_state_dict(state, strict=False)
        train(model, torch.optim.Adam(model.head.parameters()), batches(), entropy)

    assert named(audited(program)) == [("AUD201", "info")]


def test_adapters_beside_frozen_weights_are_silent(audited, batches, entropy):
    class Adapter(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner.requires_grad_(False)
            self.down = nn.Parameter(0.1 * torch.randn(2, inner.in_features))
            self.up = nn.Parameter(torch.zeros(inner.out_features, 2))

        def forward(self, x):
            return self.inner(x) + x @ self.down.t() @ self.up.t()

    def program():
        model = nn.Sequential(Adapter(nn.Linear(6, 24)), nn.ReLU(), Adapter(nn.Linear(24, 3)))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        train(model, torch.optim.AdamW(trained), batches(), entropy)

    assert audited(program) == []


def test_an_adversary_does_not_blame_the_attacked_model(audited, net, batches, entropy):
    def program():
        model = net().eval()
        shift = torch.zeros(6, requires_grad=True)
        optimizer = torch.optim.SGD([shift], 0.1)
        for x, y in batches():
            optimizer.zero_grad()
            (-entropy(model(x + shift), y)).backward()
            optimizer.step()

    assert audited(program) == []


# ---------------------------------------------------------------- parameters that join later
def unfreeze_later(model, optimizer, data, entropy):
    model.body.requires_grad_(False)
    train(model, optimizer, data[:12], entropy)
    model.body.requires_grad_(True)
    train(model, optimizer, data[12:], entropy)


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList([nn.Linear(6, 6)]), nn.Linear(6, 3)

    def grow(self):
        self.layers.append(nn.Linear(6, 6))
        return self.layers[-1]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def test_a_body_that_is_unfrozen_but_not_added(audited, batches, entropy):
    def program():
        model = Split()
        optimizer = torch.optim.Adam(model.head.parameters())
        unfreeze_later(model, optimizer, batches(24), entropy)

    assert named(audited(program)) == [("AUD201", "high")]


@pytest.mark.parametrize("steps", [False, True])
def test_a_body_that_is_unfrozen_beside_another_optimizer(audited, batches, entropy, steps):
    """One of an earlier run that is still there, or one that trains a model of its own."""

    def program():
        model, other = Split(), nn.Linear(6, 3)
        beside = torch.optim.SGD(other.parameters(), 0.1)
        optimizer = torch.optim.Adam(model.head.parameters())
        model.body.requires_grad_(False)
        for index, batch in enumerate(batches(24)):
            if index == 12:
                model.body.requires_grad_(True)
            train(model, optimizer, [batch], entropy)
            if steps:
                train(other, beside, [batch], entropy)

    assert named(audited(program)) == [("AUD201", "high")]


@pytest.mark.parametrize(("added", "found"), [(False, [("AUD201", "high")]), (True, [])])
def test_a_layer_that_grows(audited, batches, entropy, added, found):
    class Trainer:
        def __init__(self):
            self.model = Growing()
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def run(self, data):
            train(self.model, self.optimizer, data[:12], entropy)
            layer = self.model.grow()
            if added:
                self.optimizer.add_param_group({"params": layer.parameters()})
            train(self.model, self.optimizer, data[12:], entropy)

    assert named(audited(lambda: Trainer().run(batches(26)))) == found


def test_a_new_optimizer_for_what_is_unfrozen_is_silent(audited, batches, entropy):
    def program():
        model = Split()
        model.body.requires_grad_(False)
        train(model, torch.optim.Adam(model.head.parameters()), batches(12), entropy)
        model.body.requires_grad_(True)
        train(model, torch.optim.Adam(model.parameters()), batches(12), entropy)

    assert audited(program) == []
