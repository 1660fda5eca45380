"""AUD601 to 604: saving, loading and resuming."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla_audit
from nabla_audit.mapping import has_changed
from nabla_core.errors import UsageError
from nabla_guard.families.labels import LabelFacts


def loud(issues):
    return sorted({issue.rule for issue in issues if issue.severity.label != "info"})


def net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))


def fit(model, optimizer, scheduler=None, steps=5):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def through_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file)


def adam(model, rate=1e-2):
    return torch.optim.Adam(model.parameters(), rate)


class Run:
    """A run that can be stopped and resumed, with what is to be restored."""

    def __init__(self, rate=1e-2):
        self.model = net()
        self.optimizer = adam(self.model, rate)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 100)

    def train(self):
        fit(self.model, self.optimizer, self.scheduler)
        return self

    def save(self):
        return through_file({name: part.state_dict() for name, part in vars(self).items()})

    def load(self, state, *names):
        for name in names:
            getattr(self, name).load_state_dict(state[name])
        return self


def test_an_optimizer_that_is_not_restored(audited):
    def program():
        state = Run().train().save()
        Run().load(state, "model", "scheduler").train()

    issues = audited(program)
    assert loud(issues) == ["AUD601"]
    assert issues[0].evidence["component"] == "optimizer"


def test_a_schedule_that_starts_over(audited):
    def program():
        state = Run().train().save()
        Run().load(state, "model", "optimizer").train()

    issues = audited(program)
    assert loud(issues) == ["AUD601"]
    assert issues[0].evidence["component"] == "scheduler"


def test_a_plain_script_without_schedule(audited):
    def program():
        model = net()
        optimizer = adam(model)
        fit(model, optimizer)
        state = through_file({"net": model.state_dict(), "opt": optimizer.state_dict()})
        model = net()
        model.load_state_dict(state["net"])
        fit(model, adam(model))

    assert loud(audited(program)) == ["AUD601"]


def test_a_full_resume_and_fine_tuning_are_lawful(audited):
    def resumed():
        state = Run().train().save()
        Run().load(state, "model", "optimizer", "scheduler").train()

    def fine_tuned():
        state = Run().train().save()
        run = Run(rate=1e-3).load(state, "model")
        fit(run.model, run.optimizer)

    def evaluated():
        state = Run().train().save()
        run = Run().load(state, "model")
        with torch.no_grad():
            run.model.eval()(torch.randn(4, 6))

    def without_moments():
        model = net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
        sgd = torch.optim.SGD(model.parameters(), 0.1).state_dict()
        state = through_file({"m": model.state_dict(), "o": sgd})
        model = net()
        model.load_state_dict(state["m"])
        fit(model, torch.optim.SGD(model.parameters(), 0.1))

    for program in (resumed, fine_tuned, evaluated, without_moments):
        assert loud(audited(program)) == [], program.__name__


def prefixed(state, prefix="module."):
    return {prefix + name: value for name, value in state.items()}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.backbone."])
def test_a_prefix_hides_every_weight(audited, prefix):
    def program():
        model = net()
        model.load_state_dict(prefixed(net().state_dict(), prefix), strict=False)
        fit(model, adam(model))

    issues = audited(program)
    assert loud(issues) == ["AUD602"]
    assert issues[0].evidence["applied"].value == 0


def test_a_prefix_that_is_missing(audited):
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, x):
            return self.body(x)

    def program():
        model = Wrapper()
        model.load_state_dict(net().state_dict(), strict=False)
        fit(model, adam(model))

    assert loud(audited(program)) == ["AUD602"]


def test_new_heads_adapters_and_shards_are_lawful(audited):
    def new_head():
        model = net()
        state = {k: v for k, v in net().state_dict().items() if not k.startswith("2.")}
        model.load_state_dict(state, strict=False)
        fit(model, adam(model))

    def shards():
        model, state = net(), net().state_dict()
        for name in state:
            model.load_state_dict({name: state[name]}, strict=False)
        fit(model, adam(model))

    def strict():
        model = net()
        model.load_state_dict(net().state_dict())
        fit(model, adam(model))

    for program in (new_head, shards, strict):
        assert loud(audited(program)) == [], program.__name__


class Tied(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.embedding = nn.Embedding(12, 16)
        self.head = nn.Linear(16, 12, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def language(model):
    optimizer = adam(model)
    for _ in range(4):
        tokens = torch.randint(0, 12, (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), (tokens + 1) % 12).backward()
        optimizer.step()


def test_assigned_weights_are_no_longer_tied(audited):
    def program():
        model = Tied()
        model.load_state_dict(Tied(tied=False).state_dict(), assign=True)
        language(model)

    assert loud(audited(program)) == ["AUD603"]


def test_the_file_has_two_weights_for_one(audited):
    def program():
        model = Tied()
        model.load_state_dict(Tied(tied=False).state_dict())
        language(model)

    assert loud(audited(program)) == ["AUD603"]


def test_the_file_has_one_weight_for_two(audited):
    def program():
        model = Tied(tied=False)
        model.load_state_dict(through_file(Tied().state_dict()))
        language(model)

    issues = audited(program)
    assert ("AUD603", "medium") in [(i.rule, i.severity.label) for i in issues]


@pytest.mark.parametrize("tied", [True, False])
def test_ties_that_are_kept_are_lawful(audited, tied):
    def program():
        model = Tied(tied)
        model.load_state_dict(through_file(Tied(tied).state_dict()))
        language(model)

    assert audited(program) == []


def words(change_at, shuffled, seed=0):
    """Inputs whose label is a function of the word; its index changes at one step."""

    def program():
        model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 4))
        optimizer = torch.optim.Adam(model.parameters(), 0.03)
        order = torch.arange(16)
        for step in range(40):
            if step == change_at:
                order = shuffled
            word = torch.randint(0, 16, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(order[word]), word % 4).backward()
            optimizer.step()

    return program


def test_a_vocabulary_that_changes(audited):
    issues = audited(words(25, torch.arange(16).flip(0).roll(3)))
    assert loud(issues) == ["AUD604"]
    assert issues[0].evidence["since_step"] == 25


def test_classes_that_change(audited):
    def program():
        model, x = net(), torch.randn(32, 6)
        optimizer = adam(model)
        labels = x[:, :3].argmax(-1)
        for step in range(20):
            rows = torch.randperm(32)
            classes = labels if step < 12 else (labels + 1) % 3
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), classes[rows]).backward()
            optimizer.step()

    assert loud(audited(program)) == ["AUD604"]


def test_label_noise_and_a_fixed_vocabulary_are_lawful(audited):
    def noisy():
        model, x = net(), torch.randn(32, 6)
        optimizer = adam(model)
        for _ in range(20):
            labels = torch.where(torch.rand(32) < 0.2, 0, x[:, :3].argmax(-1))
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()

    assert audited(noisy) == []
    assert audited(words(25, torch.arange(16))) == []


@pytest.mark.parametrize(("known", "found"), [(7, False), (8, True)])
def test_eight_known_rows_are_needed(known, found):
    labels = LabelFacts(known=known, since=5, batches=3, changed=3, clashed=20, agreed=2)
    assert has_changed(labels) is found


def components():
    run = Run().train()
    return {
        "model": run.model,
        "optimizer": run.optimizer,
        "scheduler": run.scheduler,
        "random": torch.get_rng_state(),
        "words": {"red": 0, "green": 1, "blue": 2},
        "order": [3, 1, 2],
    }


def test_equal_components_pass():
    before = components()
    after = before | {"optimizer": copy.deepcopy(before["optimizer"].state_dict())}
    result = nabla_audit.resume(before, after)
    assert result.passed
    assert result.entries > 20
    result.raise_if_failed()


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("optimizer", lambda run: adam(run["model"]), "AUD601"),
        ("scheduler", lambda run: {**run["scheduler"].state_dict(), "last_epoch": 0}, "AUD601"),
        ("random", lambda run: run["random"].flip(0), "AUD601"),
        ("order", lambda run: [1, 2, 3], "AUD601"),
        ("words", lambda run: {"red": 2, "green": 1, "blue": 0}, "AUD604"),
    ],
)
def test_each_component_that_changed_is_named(name, change, rule):
    before = components()
    result = nabla_audit.resume(before, before | {name: change(before)})
    assert [(i.rule, i.where.op) for i in result.issues] == [(rule, name)]
    assert not result.passed


def test_a_missing_component_is_named():
    before = components()
    after = {name: part for name, part in before.items() if name != "optimizer"}
    assert [i.where.op for i in nabla_audit.resume(before, after).issues] == ["optimizer"]


def test_a_broken_tie_is_named():
    before = Tied()
    after = Tied(tied=False)
    after.load_state_dict(before.state_dict())
    result = nabla_audit.resume({"model": before}, {"model": after})
    assert [i.rule for i in result.issues] == ["AUD603"]


def test_nothing_to_compare_is_a_usage_error():
    with pytest.raises(UsageError, match="at least one component"):
        nabla_audit.resume({}, {})
