"""Clipping elsewhere, parameters that come later or anew, one loss twice, copied targets."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from nabla_guard.families.influence import is_copied


def found(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def entropy(model, x):
    return F.cross_entropy(model(x), x[:, :3].argmax(1))


def steps(model, optimizer, count=6, before=None):
    for _ in range(count):
        optimizer.zero_grad()
        entropy(model, torch.randn(16, 6)).backward()
        if before is not None:
            before()
        optimizer.step()


@pytest.mark.parametrize(("of_copy", "expected"), [(True, [("AUD108", "high")]), (False, [])])
def test_clipping_a_copy_clips_nothing(audited, net, of_copy, expected):
    def program():
        model, copy = net(), net()
        clipped = copy if of_copy else model
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        steps(model, optimizer, before=lambda: clip_grad_norm_(clipped.parameters(), 1.0))

    assert found(audited(program)) == expected


@pytest.mark.parametrize(("swapped", "expected"), [(True, [("AUD108", "high")]), (False, [])])
def test_clipping_the_other_network_before_a_step(audited, net, swapped, expected):
    def program():
        actor, critic = net(), net()
        actor_steps = torch.optim.Adam(actor.parameters(), 1e-3)
        critic_steps = torch.optim.Adam(critic.parameters(), 1e-3)
        for _ in range(8):
            clipped = actor if swapped else critic
            before = lambda clipped=clipped: clip_grad_norm_(clipped.parameters(), 1.0)  # noqa: E731
            steps(critic, critic_steps, 1, before)
            steps(actor, actor_steps, 1)

    assert found(audited(program)) == expected


class Weighing(nn.Module):
    """A loss with weights of its own, all made as zeros."""

    def __init__(self):
        super().__init__()
        self.logs = nn.Parameter(torch.zeros(2))

    def forward(self, *losses):
        return sum(loss / log.exp() + log for log, loss in zip(self.logs, losses, strict=True))


@pytest.mark.parametrize(("left_out", "expected"), [(True, [("AUD201", "medium")]), (False, [])])
def test_the_weights_of_a_loss_are_easily_forgotten(audited, net, left_out, expected):
    def program():
        model, weigh = net(), Weighing()
        more = [] if left_out else weigh.parameters()
        optimizer = torch.optim.Adam([*model.parameters(), *more], 1e-3)
        for _ in range(5):
            x = torch.randn(16, 6)
            out = model(x)
            optimizer.zero_grad()
            weigh(F.mse_loss(out[:, 0], x[:, 0]), F.mse_loss(out[:, 1], x[:, 1])).backward()
            optimizer.step()

    assert found(audited(program)) == expected


def test_a_head_that_joins_later_is_information_at_the_end(audited, net):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model[0].parameters(), 0.05)
        steps(model, optimizer, before=model[2].zero_grad)
        optimizer.add_param_group({"params": model[2].parameters()})
        steps(model, optimizer, 4)

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label) == ("AUD201", "info")
    assert "before they joined SGD" in issue.message


@pytest.mark.parametrize(("anew", "expected"), [(True, [("AUD202", "high")]), (False, [])])
def test_a_parameter_that_is_made_anew_in_every_step(audited, net, anew, expected):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(5):
            if anew:
                model[0].weight = nn.Parameter(model[0].weight * 0.99)
            else:
                model[0].weight.data.mul_(0.99)
            steps(model, optimizer, 1)

    assert found(audited(program)) == expected


def passes(parts):
    def program():
        first, last = nn.Linear(6, 8), nn.Linear(8, 3)
        optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], 0.05)
        for _ in range(5):
            x = torch.randn(16, 6)
            loss = F.cross_entropy(last(first(x).relu()), x[:, :3].argmax(1))
            optimizer.zero_grad()
            inputs = [list(first.parameters()), list(last.parameters())] if parts else [None, None]
            loss.backward(retain_graph=True, inputs=inputs[0])
            loss.backward(inputs=inputs[1])
            optimizer.step()

    return program


@pytest.mark.parametrize(("parts", "expected"), [(False, [("AUD103", "high")]), (True, [])])
def test_one_loss_is_differentiated_once(audited, parts, expected):
    assert found(audited(passes(parts))) == expected


@pytest.mark.parametrize(("followed", "expected"), [(True, ["AUD210"]), (False, [])])
def test_a_random_target_is_no_averaged_copy(audited, followed, expected):
    def make():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def program():
        model, target = make(), make().eval().requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(5):
            x = torch.randn(16, 6)
            with torch.no_grad():
                wanted = target(x)
            optimizer.zero_grad()
            F.mse_loss(model(x), wanted).backward()
            optimizer.step()
            if followed:
                for mine, other in zip(target.parameters(), model.parameters(), strict=True):
                    mine.data.lerp_(other.data, 0.1)

    assert [issue.rule for issue in audited(program)] == expected


class Words(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal, self.words, self.out = causal, nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, tokens):
        x = self.words(tokens)[:, None]
        return self.out(F.scaled_dot_product_attention(x, x, x, is_causal=self.causal)[:, 0])


@pytest.mark.parametrize(
    ("causal", "shift", "expected"),
    [(True, 0, [("AUD407", "medium")]), (False, 0, []), (True, 1, [])],
)
def test_a_causal_model_is_not_asked_for_its_input(audited, causal, shift, expected):
    def program():
        model = Words(causal)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(5):
            tokens = torch.randint(0, 12, (4, 9))
            out = model(tokens[:, : 9 - shift])
            optimizer.zero_grad()
            F.cross_entropy(out.flatten(0, 1), tokens[:, shift:].flatten()).backward()
            optimizer.step()

    assert found(audited(program)) == expected


def test_what_copies_of_tokens_are():
    tokens = torch.tensor([[1, 2, 3], [3, 1, 2]])
    assert is_copied(tokens, tokens.flatten())
    assert not is_copied(tokens, torch.tensor([[1, 2, -100], [3, 1, 2]]))
    assert not is_copied(torch.ones(2, 3, dtype=torch.long), torch.ones(6, dtype=torch.long))
