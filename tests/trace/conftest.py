"""Small models of every structure, and the slow truth that results are held against."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def cross_entropy_each(output, target):
    """Loss of each sample; of a sequence, the mean over its positions."""
    if output.dim() == 3:
        flat = F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="none")
        return flat.view(target.shape).mean(1)
    return F.cross_entropy(output, target, reduction="none")


def exact_rows(model, loss_fn, x, y):
    """One backward pass per sample over one forward pass of the whole batch: ``[N, P]``."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    buffers = [b.clone() for b in model.buffers()]
    state = torch.get_rng_state()
    inputs = x if isinstance(x, tuple) else (x,)
    losses = loss_fn(model(*inputs), y)
    rows = []
    for loss in losses:
        grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        pairs = zip(grads, parameters, strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])
        )
    torch.set_rng_state(state)
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.data.copy_(value)
    return torch.stack(rows).double()


def relative_error(found, truth):
    """Largest difference, in units of the largest true entry."""
    return float((found.double() - truth).abs().max() / truth.abs().max())


@pytest.fixture(scope="session")
def truth():
    """The slow truth."""

    class Truth:
        rows = staticmethod(exact_rows)
        error = staticmethod(relative_error)
        loss = staticmethod(cross_entropy_each)

    return Truth


@pytest.fixture(autouse=True)
def _one_thread():
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
