"""AUD601 and AUD602: state dicts whose tensors are the module's own."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def loud(issues):
    return [
        (issue.rule, issue.severity.label) for issue in issues if issue.severity.label != "info"
    ]


def fit(model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
        optimizer.step()


def cloned(state):
    return {name: value.clone() for name, value in state.items()}


@pytest.mark.parametrize("keep", [dict, lambda state: state], ids=["shallow", "alias"])
def test_the_best_weights_are_the_last_ones(audited, net, keep):
    def program():
        model = net()
        fit(model)
        best = keep(model.state_dict())
        fit(model)
        model.load_state_dict(best)

    issues = audited(program)
    assert loud(issues) == [("AUD601", "high")]
    assert issues[0].evidence["component"] == "model"


@pytest.mark.parametrize("keep", [copy.deepcopy, cloned])
def test_a_copy_of_the_best_weights_is_lawful(audited, net, keep):
    def program():
        model = net()
        fit(model)
        best = keep(model.state_dict())
        fit(model)
        model.load_state_dict(best)
        fit(model)

    assert loud(audited(program)) == []


@pytest.mark.parametrize(("keep", "found"), [(dict, [("AUD601", "high")]), (cloned, [])])
def test_weights_that_are_exchanged_for_an_evaluation(audited, net, keep, found):
    def program():
        model, average = net(), net().state_dict()
        fit(model)
        backup = keep(model.state_dict())
        model.load_state_dict(average)
        with torch.no_grad():
            model.eval()(torch.randn(4, 6))
        model.train().load_state_dict(backup)

    assert loud(audited(program)) == found


def bootstrapped(model, target, edit=False, rounds=4):
    for _ in range(rounds):
        fit(model, steps=2)
        state = model.state_dict()
        if edit:
            for value in state.values():
                value.clamp_(-0.5, 0.5)
        target.load_state_dict(state)


def test_a_target_network_that_is_the_network(audited, net):
    def program():
        model = net()
        bootstrapped(model, model)

    assert loud(audited(program)) == [("AUD601", "medium")]


def test_target_networks_and_weights_edited_in_place_are_lawful(audited, net):
    def program():
        model = net()
        bootstrapped(model, copy.deepcopy(model))
        bootstrapped(model, model, edit=True)
        bootstrapped(model, model, rounds=2)  # one time less than a pattern needs

    assert loud(audited(program)) == []


def load_what_fits(model, file):
    own = model.state_dict()
    own.update({name: value for name, value in torch.load(file).items() if name in own})
    model.load_state_dict(own)


@pytest.mark.parametrize(("prefix", "found"), [("module.", [("AUD602", "high")]), ("", [])])
def test_filtered_names_of_which_none_is_left(audited, net, prefix, found):
    def program():
        file = io.BytesIO()
        torch.save({prefix + name: value for name, value in net().state_dict().items()}, file)
        file.seek(0)
        model = net()
        load_what_fits(model, file)
        fit(model)

    assert loud(audited(program)) == found


def test_a_file_of_another_model_hides_nothing(audited, net):
    def program():
        file = io.BytesIO()
        torch.save({"module.0.weight": torch.zeros(3, 3)}, file)
        file.seek(0)
        model = nn.Sequential(net(), nn.Identity())
        load_what_fits(model, file)
        fit(model)

    assert loud(audited(program)) == []
