"""AUD103 to AUD106: accumulation in loops of different styles."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_audit.intent import means_accumulation
from nabla_guard.facts import Place


def found(issues, rule):
    return [issue for issue in issues if issue.rule == rule]


def padded(steps, rows=8, length=10, seed=3):
    """Token batches with very different numbers of valid targets."""
    generator = torch.Generator().manual_seed(seed)
    for index in range(steps):
        ids = torch.randint(0, 12, (rows, length), generator=generator)
        targets = (ids * 3 + 1) % 12
        targets[:, (2, 9, 5, 3)[index % 4] :] = -100
        yield ids, targets


def token_model():
    return nn.Sequential(nn.Embedding(12, 16), nn.Tanh(), nn.Linear(16, 12))


# ---------------------------------------------------------------- AUD103
def test_undivided_losses_in_a_plain_loop(audited, net, batches):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for index, (x, y) in enumerate(batches(24)):
            F.cross_entropy(model(x), y).backward()
            if index % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD103", "medium", 2)
    assert issue.evidence["ratio"].value == pytest.approx(4.0, abs=1e-3)
    assert issue.evidence["cosine"].value == pytest.approx(1.0, abs=1e-4)


def test_undivided_losses_in_a_trainer(audited, net, batches):
    class Trainer:
        def __init__(self):
            self.model = net(outputs=1)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
            self.accumulation_steps = 2

        def training_step(self, micro_batches):
            for x, _ in micro_batches:
                (F.mse_loss(self.model(x), x[:, :1]) + 0.01 * self.penalty()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

        def penalty(self):
            return sum(parameter.pow(2).mean() for parameter in self.model.parameters())

    def program():
        trainer, data = Trainer(), batches(16)
        for index in range(0, 16, trainer.accumulation_steps):
            trainer.training_step(data[index : index + trainer.accumulation_steps])

    assert [issue.severity.label for issue in found(audited(program), "AUD103")] == ["medium"]


def divided(model, optimizer, data):
    for index, (x, y) in enumerate(data):
        (F.cross_entropy(model(x), y) / 4).backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def multiplied(model, optimizer, data):
    for index, (x, y) in enumerate(data):
        (F.cross_entropy(model(x), y) * 0.25).backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def summed(model, optimizer, data):
    for index, (x, y) in enumerate(data):
        F.cross_entropy(model(x), y, reduction="sum").backward()
        if index % 4 == 3:
            for parameter in model.parameters():
                parameter.grad /= 64
            optimizer.step()
            optimizer.zero_grad()


def sample_by_sample(model, optimizer, data):
    for index, (x, y) in enumerate(data):
        F.cross_entropy(model(x[:1]), y[:1]).backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def real_and_fake(model, optimizer, data):
    for x, y in data:
        optimizer.zero_grad()
        for inputs, labels in ((x, y), (torch.randn_like(x), torch.zeros_like(y))):
            F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def two_losses_of_one_batch(model, optimizer, data):
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        (0.1 * model(x).pow(2).mean()).backward()
        optimizer.step()


@pytest.mark.parametrize(
    "program",
    [divided, multiplied, summed, sample_by_sample, real_and_fake, two_losses_of_one_batch],
    ids=lambda program: program.__name__,
)
def test_healthy_sums_of_gradients_are_silent(audited, net, batches, program):
    def run():
        model = net()
        program(model, torch.optim.SGD(model.parameters(), 0.01), batches(24))

    assert [issue for issue in audited(run) if issue.severity.label != "info"] == []


# ---------------------------------------------------------------- AUD104
def test_mean_of_means_over_unequal_token_counts(audited):
    def program():
        model = token_model()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        accumulation = 4
        for index, (ids, targets) in enumerate(padded(24)):
            loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
            (loss / accumulation).backward()
            if (index + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()

    (issue,) = found(audited(program), "AUD104")
    assert issue.severity.label == "medium"
    assert issue.evidence["cosine"].value < 0.999
    assert (issue.evidence["fewest_units"], issue.evidence["most_units"]) == (16.0, 72.0)


@pytest.mark.parametrize(("parts", "severity"), [(3, "medium"), (2, "info")])
def test_a_loss_divided_by_three_passes_is_meant_as_one_batch(audited, parts, severity):
    def program():
        model = token_model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        given = list(padded(parts * 8))
        for first in range(0, len(given), parts):
            for ids, targets in given[first : first + parts]:
                loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
                (loss / parts).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert {issue.severity.label for issue in found(audited(program), "AUD104")} == {severity}


def test_mean_of_masked_means(audited):
    class Trainer:
        def __init__(self):
            self.model = token_model()
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def loss(self, ids, targets):
            mask = (targets != -100).float()
            logits = self.model(ids).flatten(0, 1)
            each = F.cross_entropy(logits, targets.clamp(min=0).flatten(), reduction="none")
            return (each * mask.flatten()).sum() / mask.sum()

        def fit(self, micro_batches):
            for index, (ids, targets) in enumerate(micro_batches):
                (self.loss(ids, targets) / 4).backward()
                if index % 4 == 3:
                    self.optimizer.step()
                    self.optimizer.zero_grad()

    assert found(audited(lambda: Trainer().fit(padded(24))), "AUD104")


def test_losses_weighted_by_their_tokens_are_silent(audited):
    def program():
        model = token_model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = list(padded(24))
        for start in range(0, 24, 4):
            window = data[start : start + 4]
            total = sum(int((targets != -100).sum()) for _, targets in window)
            for ids, targets in window:
                logits = model(ids).flatten(0, 1)
                loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / total
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    assert audited(program) == []


def test_one_short_batch_per_epoch_is_silent(audited, net, batches):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(3):
            for index, (x, y) in enumerate(batches(12)):
                rows = 5 if index == 11 else 16
                (F.cross_entropy(model(x[:rows]), y[:rows]) / 4).backward()
                if index % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()

    assert audited(program) == []


# ---------------------------------------------------------------- AUD105
@pytest.mark.parametrize("clear", ["optimizer", "model"])
def test_clearing_per_micro_batch(audited, net, batches, clear):
    def program():
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        for index, (x, y) in enumerate(batches(32)):
            (optimizer if clear == "optimizer" else model).zero_grad()
            (F.cross_entropy(model(x), y) / 4).backward()
            if index % 4 == 3:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
        return [parameter.grad.norm() for parameter in model.parameters()]  # of the last pass only

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD105", "high", 2)
    assert "3 of 4 micro-batches" in issue.message
    assert "In 8 of 8 steps" in issue.message


def gradient_norm_of_a_part(model, optimizer, x, y):
    F.cross_entropy(model(x[:4]), y[:4]).backward()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


def sharpness_aware(model, optimizer, x, y):
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        moves = [0.01 * parameter.grad for parameter in model.parameters()]
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.add_(move)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.sub_(move)
    optimizer.step()
    optimizer.zero_grad()


def adversarial(model, optimizer, x, y):
    shift = torch.zeros_like(x, requires_grad=True)
    F.cross_entropy(model(x + shift), y).backward()
    optimizer.zero_grad()
    F.cross_entropy(model(x + 0.1 * shift.grad.sign()), y).backward()
    optimizer.step()


def projected(model, optimizer, x, y):
    kept = []
    for part in (slice(0, 8), slice(8, 16)):
        optimizer.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
        kept.append([parameter.grad.clone() for parameter in model.parameters()])
    for parameter, *grads in zip(model.parameters(), *kept, strict=True):
        parameter.grad.copy_((grads[0] + grads[1]) / 2)
    optimizer.step()


@pytest.mark.parametrize(
    "step",
    [gradient_norm_of_a_part, sharpness_aware, adversarial, projected],
    ids=lambda step: step.__name__,
)
def test_gradients_cleared_on_purpose_are_silent(audited, net, batches, step):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for x, y in batches(10):
            step(model, optimizer, x, y)

    assert [issue for issue in audited(program) if issue.severity.label != "info"] == []


# ---------------------------------------------------------------- AUD106
@pytest.mark.parametrize(("later", "issues"), [(2, ["AUD106"]), (4, [])])
def test_a_lasting_change_of_the_count_is_told(audited, net, batches, later, issues):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        waiting = 0
        for index, (x, y) in enumerate(batches(60)):
            (F.cross_entropy(model(x), y) / 4).backward()
            waiting += 1
            if waiting == (4 if index < 48 else later):
                waiting = 0
                optimizer.step()
                optimizer.zero_grad()

    assert [(issue.rule, issue.severity.label) for issue in audited(program)] == [
        (rule, "info") for rule in issues
    ]


def test_a_trainer_that_doubles_its_passes(audited, net):
    class Trainer:
        def __init__(self):
            self.model, self.passes = net(), 2
            self.optimizer = torch.optim.Adam(self.model.parameters())

        def step(self):
            self.optimizer.zero_grad()
            for x in torch.randn(self.passes, 8, 6):
                (F.cross_entropy(self.model(x), x[:, :3].argmax(-1)) / self.passes).backward()
            self.optimizer.step()

        def fit(self):
            for epoch in range(2):
                self.passes = 2 * (epoch + 1)
                for _ in range(14):
                    self.step()

    assert [issue.rule for issue in audited(lambda: Trainer().fit())] == ["AUD106"]


# ---------------------------------------------------------------- intent
@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("for i in x:\n    back()\n    if i % 4 == 3:\n        step()\n", True),
        ("def fit(accum_steps):\n    back()\n\n\n    step()\n", True),
        ("for task in tasks:\n    back()\n\nif done:\n    step()\n", False),
        ("acc = 0.5\nback()\nacc += 1\n\nstep()\n", False),
    ],
)
def test_intent_is_read_off_the_source(tmp_path, source, meant):
    path = tmp_path / "train.py"
    path.write_text(source)
    name = str(path)
    back = Place(name, 2, "")
    step = Place(name, source[: source.index("step()")].count("\n") + 1, "")
    assert means_accumulation(back, step) is meant


def test_no_source_is_no_intent():
    assert means_accumulation(Place("<nowhere>", 1, ""), None) is False
