"""Layers whose gradients are sparse are measured like the others."""

import torch
from torch import nn

import nabla


def test_a_sparse_gradient_does_not_end_the_measuring_of_layers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 8, sparse=True), nn.Linear(8, 9))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    with nabla.watch(net, optimizer, quiet=True) as run:
        for _ in range(12):
            x = torch.randint(9, (16,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), x).backward()
            optimizer.step()

    assert run.finish().problems == ()
