"""The state is looked at once, part by part, at the same cost for each."""

import random

import pytest
import torch
from torch import nn

from nabla_replay.fingerprints.fingerprinter import Fingerprinter, algorithm_for
from nabla_replay.fingerprints.layout import Extent, cut
from nabla_replay.fingerprints.table import entries_of, extent_of

CALL = 4096


def random_extents(seed):
    draw = random.Random(seed)
    sizes = [draw.choice([0, 4, 8, 100, 4096, 5000, 262_144, 1_000_003]) for _ in range(40)]
    return [Extent(size, whole=draw.random() < 0.1) for size in sizes]


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_every_byte_is_looked_at_exactly_once(seed, parts):
    extents = random_extents(seed)

    groups = cut(extents, parts)

    assert len(groups) == parts
    for index, extent in enumerate(extents):
        pieces = sorted((p.start, p.end) for group in groups for p in group if p.entry == index)
        assert pieces[0][0] == 0
        assert pieces[-1][1] == extent.size_bytes
        assert all(one[1] == other[0] for one, other in zip(pieces, pieces[1:], strict=False))
        assert len(pieces) == 1 or not extent.whole


@pytest.mark.parametrize("seed", range(5))
def test_parts_cost_about_the_same(seed):
    extents = [extent for extent in random_extents(seed) if not extent.whole]
    costs = [sum(p.end - p.start + CALL for p in group) for group in cut(extents, 8)]
    assert max(costs) <= 1.5 * sum(costs) / len(costs)


def test_the_same_state_is_always_cut_alike():
    assert cut(random_extents(3), 8) == cut(random_extents(3), 8)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(300, 200)
        self.norm = nn.BatchNorm1d(200)
        self.tied = self.inner.weight
        self.phase = nn.Parameter(torch.randn(4, dtype=torch.complex64))
        self.register_buffer("moving", torch.zeros(3), persistent=False)


def fingerprinter(model, parts=1, algorithm="crc32"):
    entries = entries_of(model)
    return Fingerprinter(entries, [extent_of(entry) for entry in entries], algorithm, parts)


def values(model, **options):
    look = fingerprinter(model, **options)
    return [look(part) for part in range(look.parts)]


def test_tied_tensors_are_listed_once_and_hidden_buffers_are_listed():
    names = [entry.name for entry in entries_of(Model()) if entry.component != "gradient"]
    assert names.count("inner.weight") + names.count("tied") == 1
    assert "moving" in names


@pytest.mark.parametrize("algorithm", ["crc32", "mlh64"])
@pytest.mark.parametrize("parts", [1, 4])
def test_one_changed_element_changes_one_part(algorithm, parts):
    model = Model()
    before = values(model, parts=parts, algorithm=algorithm)
    with torch.no_grad():
        model.inner.weight[100, 7] += 1e-3
    after = values(model, parts=parts, algorithm=algorithm)
    changed = [index for index in range(parts) if before[index] != after[index]]
    assert len(changed) == 1


def test_a_buffer_that_is_assigned_anew_is_seen():
    model = Model()
    look = fingerprinter(model)
    before = look(0)
    model.moving = model.moving + 1
    assert look(0) != before


def test_a_parameter_that_moves_or_changes_its_size_is_still_hashed():
    model = Model()
    look = fingerprinter(model, parts=4)
    model.inner.weight.data = torch.randn(400, 300)
    model.norm.weight.data = model.norm.weight.data.double()
    before = [look(part) for part in range(4)]
    model.inner.weight.data[399, 299] += 1
    assert [look(part) for part in range(4)] != before


def test_a_gradient_is_absent_sparse_or_there():
    embedding = nn.Embedding(10, 4, sparse=True)
    look = fingerprinter(embedding)
    assert look(0)[1] == 0
    embedding(torch.tensor([1, 2])).sum().backward()
    assert look(0)[1] != 0


def test_memory_that_was_freed_under_a_tensor_is_not_read():
    model = nn.Linear(64, 64)
    look = fingerprinter(model)
    model.weight.data.untyped_storage().resize_(0)
    assert look(0)[0] == 0


def test_lazy_parameters_have_no_value_yet():
    assert fingerprinter(nn.LazyLinear(3))(0) == [0, 0, 0, 0]


def test_tensors_in_host_memory_take_the_quickest_hash():
    assert algorithm_for(entries_of(nn.Linear(2, 2))) == "crc32"
