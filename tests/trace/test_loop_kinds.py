"""Loops of every kind under a trace: nothing changes, nothing fails, and nothing wrong is said."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import nabla

X = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))
Y = torch.randint(3, (96,), generator=torch.Generator().manual_seed(1))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


def loss_of(model, k, rows=32):
    return F.cross_entropy(model(X[k : k + rows]), Y[k : k + rows])


def plain(model, optimizer, k):
    optimizer.zero_grad()
    loss_of(model, k).backward()
    optimizer.step()


def with_a_closure(model, optimizer, k):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, k)
        loss.backward()
        return loss

    optimizer.step(closure)


def with_autocast(model, optimizer, k):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, k)
    loss.backward()
    optimizer.step()


def in_parts(model, optimizer, k):
    optimizer.zero_grad()
    for part in range(2):
        (loss_of(model, k + 16 * part, 16) / 2).backward()
    optimizer.step()


def two_backward_passes(model, optimizer, k):
    optimizer.zero_grad()
    out = model(X[k : k + 32])
    F.cross_entropy(out, Y[k : k + 32]).backward(retain_graph=True)
    out.square().mean().backward()
    optimizer.step()


def checkpointed(model, optimizer, k):
    optimizer.zero_grad()
    out = checkpoint(model, X[k : k + 32], use_reentrant=False)
    F.cross_entropy(out, Y[k : k + 32]).backward()
    optimizer.step()


def evaluated_in_between(model, optimizer, k):
    plain(model, optimizer, k)
    model.eval()
    with torch.no_grad():
        model(X)
    model.train()


# kind of step → whether there are samples, own probes, next-batch probes
KINDS = {
    plain: (True, True, True),
    evaluated_in_between: (True, True, True),
    with_autocast: (True, True, True),
    checkpointed: (True, True, True),
    in_parts: (False, False, True),
    two_backward_passes: (False, False, True),
    with_a_closure: (False, False, False),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_kinds_of_loops(kind):
    states = []
    for traced in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        torch.manual_seed(7)
        if traced:
            with nabla.trace.attach(model, optimizer, every=3) as trace:
                for k in range(8):
                    kind(model, optimizer, k)
        else:
            for k in range(8):
                kind(model, optimizer, k)
        states.append([*model.state_dict().values(), torch.get_rng_state()])

    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))
    assert trace.failed == {}
    found = bool(trace.looks), bool(trace.own_batch), bool(trace.next_batch)
    assert found == KINDS[kind]
    assert trace.looks or trace.skipped[0]


def test_lbfgs_is_left_alone():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    with nabla.trace.attach(model, optimizer, every=2) as trace:
        for k in range(4):
            with_a_closure(model, optimizer, k)

    assert trace.failed == {} and trace.own_batch == trace.next_batch == ()
