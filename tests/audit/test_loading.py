"""AUD501 to 504: what the data gives."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from nabla_audit.loading import judge_loader
from nabla_guard.families.loader_facts import EpochFacts, LoaderFacts
from nabla_guard.families.loaders import describe_loader


def rules_of(issues):
    return sorted({issue.rule for issue in issues if issue.severity.label != "info"})


@pytest.fixture
def table():
    x = torch.randn(64, 6)
    return TensorDataset(x, x[:, :3].argmax(-1))


class Fit:
    """One step at a time, with an optimizer of its own."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)

    def __call__(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()


def test_a_new_iterator_in_each_step(audited, table):
    def program():
        fit, loader = Fit(), DataLoader(table, batch_size=16)
        for _ in range(8):
            fit(*next(iter(loader)))

    issues = audited(program)
    assert rules_of(issues) == ["AUD501"]
    assert issues[0].step == 5


def test_a_new_iterator_inside_a_method(audited, table):
    class Trainer:
        def __init__(self):
            self.fit, self.loader = Fit(), DataLoader(table, batch_size=8)

        def get_batch(self):
            for batch in self.loader:
                return batch

        def train(self):
            for _ in range(8):
                self.fit(*self.get_batch())

    assert rules_of(audited(lambda: Trainer().train())) == ["AUD501"]


def test_full_batches_shuffled_first_batches_and_peeks_are_lawful(audited, table):
    def full_batch():
        fit, loader = Fit(), DataLoader(table, batch_size=64)
        for _ in range(8):
            fit(*next(iter(loader)))

    def shuffled():
        fit, loader = Fit(), DataLoader(table, batch_size=16, shuffle=True)
        for _ in range(8):
            fit(*next(iter(loader)))

    def peeking_at_validation():
        fit = Fit()
        train, validation = DataLoader(table, 64, shuffle=True), DataLoader(table, 16)
        for _ in range(8):
            for x, y in train:
                fit(x, y)
            with torch.no_grad():
                fit.model(next(iter(validation))[0])

    for program in (full_batch, shuffled, peeking_at_validation):
        assert audited(program) == [], program.__name__


def test_set_epoch_is_forgotten(audited, table):
    def program():
        fit = Fit()
        sampler = DistributedSampler(table, num_replicas=2, rank=0, shuffle=True)
        loader = DataLoader(table, batch_size=8, sampler=sampler)
        for _ in range(3):
            for x, y in loader:
                fit(x, y)

    issues = audited(program)
    assert rules_of(issues) == ["AUD502"]
    assert "set_epoch" in issues[0].message


def test_a_generator_is_seeded_in_each_epoch(audited, table):
    def program():
        fit, generator = Fit(), torch.Generator()
        loader = DataLoader(table, batch_size=8, shuffle=True, generator=generator)
        for _ in range(3):
            generator.manual_seed(0)
            for x, y in loader:
                fit(x, y)

    assert rules_of(audited(program)) == ["AUD502"]


def test_a_program_that_is_seeded_in_each_epoch(audited, table):
    class Trainer:
        def __init__(self):
            self.fit = Fit()

        def epoch(self):
            torch.manual_seed(3)
            for x, y in DataLoader(table, batch_size=8, shuffle=True):
                self.fit(x, y)

        def run(self):
            for _ in range(3):
                self.epoch()

    assert rules_of(audited(lambda: Trainer().run())) == ["AUD502"]


@pytest.mark.parametrize("loader", ["one", "new"])
def test_two_experiments_may_share_an_order(audited, table, loader):
    def program():
        generator = torch.Generator()
        shared = DataLoader(table, batch_size=8, shuffle=True, generator=generator)
        for _ in range(3):
            fit = Fit()
            generator.manual_seed(0)
            fresh = DataLoader(table, batch_size=8, shuffle=True, generator=generator)
            for x, y in shared if loader == "one" else fresh:
                fit(x, y)

    assert audited(program) == []


def test_a_loader_made_for_each_step(audited, table):
    def program():
        fit = Fit()
        for _ in range(8):
            fit(*next(iter(DataLoader(table, batch_size=16))))

    assert rules_of(audited(program)) == ["AUD501"]


def test_orders_that_change_or_only_evaluate_are_lawful(audited, table):
    def with_set_epoch():
        fit = Fit()
        sampler = DistributedSampler(table, num_replicas=2, rank=0, shuffle=True)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for x, y in DataLoader(table, batch_size=8, sampler=sampler):
                fit(x, y)

    def same_order_in_evaluation():
        fit, generator = Fit(), torch.Generator()
        loader = DataLoader(table, batch_size=8, shuffle=True, generator=generator)
        for _ in range(3):
            for x, y in DataLoader(table, batch_size=16, shuffle=True):
                fit(x, y)
            generator.manual_seed(0)
            with torch.no_grad():
                for x, _ in loader:
                    fit.model(x)

    for program in (with_set_epoch, same_order_in_evaluation):
        assert audited(program) == [], program.__name__


@pytest.mark.parametrize(("samples", "epochs", "found"), [(12, 2, 1), (11, 2, 0), (11, 3, 1)])
def test_few_samples_need_a_third_epoch(samples, epochs, found):
    loader = LoaderFacts(
        sampler="RandomSampler",
        shuffles=True,
        samples=samples,
        epochs=[EpochFacts(order=[1, 2, 3], given=3) for _ in range(epochs)],
    )
    assert len(list(judge_loader(loader, 0, complete=True))) == found


class Noisy(Dataset):
    def __init__(self, generator):
        self.x = torch.randn(16, 6)
        self.generator = generator

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return self.x[index], int(self.x[index, :3].argmax())


class Drawing(Noisy):
    def __getitem__(self, index):
        return self.x[index] + self.generator.gauss(0, 1), int(self.x[index, :3].argmax())


@pytest.mark.parametrize("generator", [random.Random(0), torch.Generator()], ids=["py", "torch"])
def test_workers_that_copy_a_generator(generator):
    faulty = describe_loader(DataLoader(Drawing(generator), num_workers=2))
    assert faulty.copied_generators == ("generator",)
    assert [i.rule for i in judge_loader(faulty, 0)] == ["AUD503"]


def test_a_generator_inside_a_transform(audited):
    class Jitter:
        def __init__(self):
            self.generator = random.Random(0)

        def __call__(self, x):
            return x + self.generator.random()

    dataset = Noisy(None)
    dataset.transforms = [print, Jitter()]
    faulty = describe_loader(DataLoader(dataset, num_workers=2))
    assert faulty.copied_generators == ("transforms.1.generator",)


def test_two_processes_that_draw_the_same(audited):
    def program():
        fit = Fit()
        for x, y in DataLoader(Drawing(random.Random(0)), batch_size=4, num_workers=2):
            fit(x.float(), y)

    assert rules_of(audited(program)) == ["AUD503"]


def test_workers_that_seed_their_generator_are_lawful():
    seeded = DataLoader(Drawing(random.Random(0)), num_workers=2, worker_init_fn=print)
    alone = DataLoader(Drawing(random.Random(0)), num_workers=1)
    without = DataLoader(Drawing(None), num_workers=2)
    held_for_nothing = DataLoader(Noisy(random.Random(0)), num_workers=2)
    for loader in (seeded, alone, without, held_for_nothing):
        assert list(judge_loader(describe_loader(loader), 0)) == []


def on_columns(change):
    def program():
        fit = Fit()
        for _ in range(4):
            x = torch.randn(16, 6)
            y = x[:, :3].argmax(-1)
            fit(change(x), y)

    return program


def of_504(issues):
    return [(issue.severity.label, issue.step) for issue in issues if issue.rule == "AUD504"]


def test_a_constant_feature_divided_by_its_deviation(audited):
    def standardised(x):
        x[:, 4] = 3.0
        return (x - x.mean(0)) / x.std(0)

    issues = audited(on_columns(standardised))
    assert of_504(issues) == [("high", 2)]


def test_an_infinite_column(audited):
    def infinite(x):
        return torch.cat([x[:, :5], torch.full((16, 1), float("inf"))], 1)

    assert of_504(audited(on_columns(infinite))) == [("high", 2)]


def test_a_constant_column_is_only_a_note(audited):
    def with_bias(x):
        x[:, 5] = 1.0
        return x

    assert of_504(audited(on_columns(with_bias))) == [("info", 2)]
    assert of_504(audited(on_columns(lambda x: x))) == []


def test_missing_values_that_the_model_handles_are_only_a_note(audited):
    class Handles(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x):
            return self.net(torch.nan_to_num(x))

    def program():
        fit = Fit()
        fit.model = Handles()
        fit.optimizer = torch.optim.SGD(fit.model.parameters(), 0.1)
        for _ in range(4):
            x = torch.randn(16, 6)
            y = x[:, :3].argmax(-1)
            x[:, 5] = float("nan")
            fit(x, y)

    assert of_504(audited(program)) == [("info", 2)]
