"""AUD101 and AUD102, over facts and in real loops of different styles."""

import pytest
import torch
from torch import nn

from nabla_audit.protocol import ProtocolDetector
from nabla_guard.facts import Call, OptimizerFacts


def named(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


# ---------------------------------------------------------------- over facts
def cleared(**changes):
    calls = [Call(kind="write", nonzero=True, backward=1), Call(kind="clear", parameters=4)]
    given = {"name": "Adam", "calls": calls, "gradient": "none"} | changes
    return OptimizerFacts(**given)


@pytest.mark.parametrize(("steps", "found"), [(2, []), (3, [("AUD101", 2)]), (9, [("AUD101", 2)])])
def test_three_empty_steps_in_a_row_are_a_verdict(fake_facts, judge, steps, found):
    assert judge(ProtocolDetector(fake_facts(cleared())), steps) == found


@pytest.mark.parametrize(
    "facts",
    [
        cleared(gradient="nonzero"),
        cleared(gradient="unknown"),
        cleared(closure=True),
        cleared(calls=[]),
        cleared(calls=[Call(kind="clear")]),
        cleared(calls=[Call(kind="clear"), Call(kind="write", backward=1)], gradient="zero"),
        cleared(
            calls=[
                Call(kind="write", nonzero=False, backward=1),
                Call(kind="clear", by_hand=True),
            ],
            gradient="zero",
        ),
    ],
)
def test_what_only_looks_like_an_empty_step_is_none(fake_facts, judge, facts):
    assert judge(ProtocolDetector(fake_facts(facts)), 6) == []


def test_a_run_that_is_interrupted_starts_anew(fake_facts, judge):
    facts = cleared()

    def before(step):
        facts.gradient = "nonzero" if step == 2 else "none"

    assert judge(ProtocolDetector(fake_facts(facts)), 6, before) == [("AUD101", 5)]


@pytest.mark.parametrize(("steps", "found"), [(2, []), (3, [("AUD102", 2)])])
def test_three_carried_steps_in_a_row_are_a_verdict(fake_facts, judge, steps, found):
    facts = OptimizerFacts(name="SGD", carried=True, gradient="nonzero")
    assert judge(ProtocolDetector(fake_facts(facts)), steps) == found


# ---------------------------------------------------------------- faulty loops
def test_zero_grad_between_backward_and_step(audited, net, batches, entropy):
    def program():
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in batches():
            entropy(model(x), y).backward()
            optimizer.zero_grad()
            optimizer.step()

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD101", "high", 2)
    assert issue.where.file.endswith("test_protocol.py")
    assert "since step 0" in issue.message


def test_a_trainer_class_that_clears_the_model_too_late(audited, net, batches, entropy):
    class Trainer:
        def __init__(self):
            self.model = net()
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)

        def training_step(self, batch):
            x, y = batch
            return entropy(self.model(x), y)

        def fit(self, data):
            for batch in data:
                self.training_step(batch).backward()
                self.model.zero_grad(set_to_none=False)
                self.optimizer.step()

    assert named(audited(lambda: Trainer().fit(batches()))) == [("AUD101", "high")]


@pytest.mark.parametrize("how", ["none", "zero"])
def test_gradients_cleared_by_hand(audited, net, batches, entropy, how):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, y in batches():
            entropy(model(x), y).backward()
            for parameter in model.parameters():
                if how == "zero":
                    parameter.grad.zero_()
                else:
                    parameter.grad = None
            optimizer.step()

    (issue,) = audited(program)
    assert (issue.rule, issue.step) == ("AUD101", 2)


@pytest.mark.parametrize("begins", [0, 12])
def test_a_loop_that_never_clears(audited, net, batches, entropy, begins):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step, (x, y) in enumerate(batches(24)):
            if step < begins:
                optimizer.zero_grad()
            entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()

    (issue,) = audited(program)
    assert issue.rule == "AUD102"
    assert begins <= issue.step <= begins + 6


def test_clearing_another_optimizer(audited, net, batches, entropy):
    def program():
        first, second = net(), net()
        one = torch.optim.SGD(first.parameters(), 0.01)
        two = torch.optim.SGD(second.parameters(), 0.01)
        for x, y in batches():
            two.zero_grad()
            (entropy(first(x), y) + entropy(second(x), y)).backward()
            one.step()
            two.step()

    assert named(audited(program)) == [("AUD102", "high")]


# ---------------------------------------------------------------- healthy loops
def plain(model, optimizer, data, entropy):
    for x, y in data:
        optimizer.zero_grad()
        entropy(model(x), y).backward()
        optimizer.step()


def clearing_behind(model, optimizer, data, entropy):
    for x, y in data:
        entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def by_hand(model, optimizer, data, entropy):
    for x, y in data:
        entropy(model(x), y).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.zero_()


def by_hand_to_none(model, optimizer, data, entropy):
    for x, y in data:
        entropy(model(x), y).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None


def accumulating(model, optimizer, data, entropy):
    for index, (x, y) in enumerate(data):
        (entropy(model(x), y) / 4).backward()
        if index % 4 == 3 or index + 1 == len(data):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def projecting(model, optimizer, data, entropy):
    for x, y in data:
        found = []
        for _ in range(2):
            optimizer.zero_grad()
            entropy(model(x), y).backward()
            found.append([parameter.grad.clone() for parameter in model.parameters()])
        optimizer.zero_grad()
        for parameter, first, second in zip(model.parameters(), *found, strict=True):
            parameter.grad = first + second
        optimizer.step()


def decaying(model, optimizer, data, entropy):
    for x, y in data:
        entropy(model(x), y).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)


def sharpness_aware(model, optimizer, data, entropy):
    for x, y in data:
        entropy(model(x), y).backward()
        with torch.no_grad():
            moved = [0.01 * parameter.grad for parameter in model.parameters()]
            for parameter, step in zip(model.parameters(), moved, strict=True):
                parameter.add_(step)
        model.zero_grad()
        entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter, step in zip(model.parameters(), moved, strict=True):
                parameter.sub_(step)
        optimizer.step()
        optimizer.zero_grad()


def zero_loss(model, optimizer, data, entropy):
    for x, y in data:
        optimizer.zero_grad()
        (0.0 * entropy(model(x), y)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def second_order(model, optimizer, data, entropy):
    for x, y in data:
        optimizer.zero_grad()
        loss = entropy(model(x), y)
        loss.backward(create_graph=True)
        sum(parameter.grad.square().sum() for parameter in model.parameters()).backward()
        optimizer.step()


def closures(model, optimizer, data, entropy):
    for x, y in data:

        def closure(x=x, y=y):
            loss = entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        optimizer.zero_grad()


def step_with_nothing(model, optimizer, data, entropy):
    for _ in data:
        optimizer.step()


HEALTHY = [
    plain,
    clearing_behind,
    by_hand,
    by_hand_to_none,
    accumulating,
    projecting,
    decaying,
    sharpness_aware,
    zero_loss,
    second_order,
    closures,
    step_with_nothing,
]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("train", HEALTHY, ids=lambda train: train.__name__)
def test_healthy_protocols_are_silent(audited, net, batches, entropy, train):
    def program():
        model = net()
        train(model, torch.optim.SGD(model.parameters(), 0.05), batches(18), entropy)

    assert [issue for issue in audited(program) if issue.severity.label != "info"] == []


def test_generator_and_discriminator_clear_before_use(audited, net):
    def program():
        generator, critic = net(outputs=6), net(outputs=1)
        of_generator = torch.optim.Adam(generator.parameters(), 1e-3)
        of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
        for _ in range(12):
            of_critic.zero_grad()
            fake = generator(torch.randn(8, 6))
            (critic(fake.detach()).mean() - critic(torch.randn(8, 6)).mean()).backward()
            of_critic.step()
            of_generator.zero_grad()
            (-critic(fake).mean()).backward()
            of_generator.step()

    assert audited(program) == []


def test_a_scaler_that_skips_is_healthy(audited, net, batches, entropy):
    def program():
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step, (x, y) in enumerate(batches(12)):
            optimizer.zero_grad()
            loss = entropy(model(x), y) * (float("inf") if step in (3, 4, 5, 6) else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    assert audited(program) == []
