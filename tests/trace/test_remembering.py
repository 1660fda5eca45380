"""What is remembered between calls: marks of tensors, the project's options, layouts."""

import gc
from collections import Counter

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import nabla
from nabla_trace.delivery import trace_options
from nabla_trace.ghost.tensor_marks import TensorMarks


def test_a_mark_is_of_one_tensor_and_keeps_none_alive():
    marks = TensorMarks()
    first = torch.zeros(2)
    marks[first] = "first"
    assert marks.get(first) == "first" and first in marks
    assert torch.zeros(2) not in marks

    marks._marks[id(other := torch.ones(2))] = marks._marks[id(first)]  # an identity used again
    del first
    gc.collect()
    assert other not in marks and marks.get(other) is None


def test_options_are_read_again_when_they_have_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = trace_options()
    assert trace_options() is before

    (tmp_path / "nabla.toml").write_text("[trace]\nsample-share = 3.0\n")
    assert trace_options().sample_share == 3.0
    (tmp_path / "nabla.toml").write_text("[trace]\nsample-share = 17.0\n")
    assert trace_options().sample_share == 17.0


def test_another_batch_size_is_compared_anew():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(2, 2, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    seen = []
    with nabla.trace.attach(model, optimizer, every=1, what=("samples",)) as trace:
        for samples in (5, 7, 5, 6):
            optimizer.zero_grad()
            model(torch.randn(samples, 2, 3)).square().mean().backward()
            optimizer.step()
            seen.append(len(trace.gram))

    assert seen == [5, 7, 5, 6] and not trace.skipped


class Counting(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def counted(model, loss, batch):
    for _ in range(2):  # the first call learns
        with Counting() as counting:
            result = nabla.trace.samples(model, loss, batch)
    return result, counting.seen


def test_what_a_remembered_call_does_besides_a_step(truth):
    """On small layers the number of operations is what it costs."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    with Counting() as plain:
        truth.loss(model(x), y).mean().backward()

    _, seen = counted(model, truth.loss, (x, y))

    assert seen.total() - plain.seen.total() <= 45 + 30 * 3  # at all, and for each linear layer


class Placed(nn.Module):
    """Adds positions twice; one of them is for padding."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(7, 6), nn.Linear(6, 3)
        self.places = nn.Embedding(5, 6, padding_idx=1)

    def forward(self, x):
        places = self.places(torch.arange(x.shape[1]) % 3)
        return self.head((torch.tanh(self.words(x) + places) + places).mean(1))


def test_positions_need_no_backward_pass_per_sample(truth):
    model, x, y = Placed().double(), torch.randint(7, (9, 5)), torch.randint(3, (9,))
    rows = truth.rows(model, truth.loss, x, y)

    result, seen = counted(model, truth.loss, (x, y))

    assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert seen["embedding_dense_backward"] == 2  # of words and places, in the step itself
