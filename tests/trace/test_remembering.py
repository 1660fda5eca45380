"""What is remembered between calls: marks of tensors, the project's options, layouts."""

import gc

import torch
from torch import nn

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
