"""AUD501 and AUD502: workers that all deliver everything, batch samplers written by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from nabla_audit.loading import judge_loader
from nabla_guard.families.loader_facts import LoaderFacts
from nabla_guard.families.worker_copies import WorkerCopies


class Buckets(Sampler):
    """Batches of a new order in each epoch, if it is told the epoch."""

    def __init__(self, samples, ordered=False):
        self.samples, self.ordered, self.epoch = samples, ordered, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.samples // 8

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.samples, generator=generator).tolist()
        order = sorted(order) if self.ordered else order
        return (order[start : start + 8] for start in range(0, self.samples, 8))


def fit(loaders):
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for loader in loaders:
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def table(samples=48):
    x = torch.randn(samples, 6)
    return TensorDataset(x, (x[:, 0] > 0).long())


@pytest.mark.parametrize(
    ("told", "ordered", "expected"),
    [(False, False, [("AUD502", "medium")]), (True, False, []), (False, True, [])],
)
def test_a_batch_sampler_that_is_not_told_the_epoch(audited, told, ordered, expected):
    def program():
        sampler = Buckets(48, ordered)
        loader = DataLoader(table(), batch_sampler=sampler)

        def epochs():
            for epoch in range(3):
                if told:
                    sampler.set_epoch(epoch)
                yield loader

        fit(epochs())

    assert [(issue.rule, issue.severity.label) for issue in audited(program)] == expected


class Stream(IterableDataset):
    def __init__(self, divided):
        self.rows, self.divided = table(24), divided

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        start, stride = (worker.id, worker.num_workers) if self.divided else (0, 1)
        return (self.rows[index] for index in range(start, len(self.rows), stride))


@pytest.mark.parametrize(("divided", "expected"), [(False, ["AUD501"]), (True, [])])
def test_workers_divide_an_iterable_dataset(audited, divided, expected):
    def program():
        fit([DataLoader(Stream(divided), batch_size=4, num_workers=2)])

    assert [issue.rule for issue in audited(program)] == expected


@pytest.mark.parametrize(
    ("batches", "rounds"),
    [((1, 1, 2, 2, 3, 3), 3), ((1, 1, 2, 2, 3, 4), 0), ((1, 1, 1, 1, 1, 1), 0)],
)
def test_rounds_are_counted_unless_the_data_is_constant(batches, rounds):
    loader = LoaderFacts(workers=2, iterators=1)
    copies, epoch = WorkerCopies(), object()
    copies.follow(loader, epoch)

    for value in batches:
        copies.given(epoch, torch.full((3,), float(value)))

    assert not copies.watches
    assert loader.copied_batches == rounds
    assert len(list(judge_loader(loader, 0))) == (rounds == 3)
