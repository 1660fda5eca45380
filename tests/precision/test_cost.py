"""What an audit costs, in plain steps.

pytest tests/precision/test_cost.py -m slow -s
"""

import statistics
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla

pytestmark = pytest.mark.slow
DTYPES = (torch.float16, torch.bfloat16)
LIMIT, SLACK = 12, 1.8  # a busy machine is noisy; the number that is printed is what counts


def mlp():
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), torch.randn(16, 784), torch.randint(10, (16,))


def transformer():
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(1000, 128), body, nn.LayerNorm(128), nn.Linear(128, 1000))
    tokens = torch.randint(1000, (2, 16, 32))
    return model, tokens[0], tokens[1]


def loss(output, target):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def cpu_seconds(work):
    started = time.thread_time()
    work()
    return time.thread_time() - started


@pytest.mark.parametrize("make", [mlp, transformer])
def test_two_dtypes_cost_at_most_twelve_steps(make):
    model, x, y = make()

    def plain():
        model.zero_grad()
        loss(model(x), y).backward()

    def audited():
        nabla.precision.audit(model, (x, y), loss_fn=loss, candidate_dtypes=DTYPES)

    plain(), audited()
    ratios = []
    for _ in range(7):
        steps = [cpu_seconds(plain) for _ in range(3)]
        ratios.append(cpu_seconds(audited) / statistics.median(steps))
    middle, low = statistics.median(ratios), statistics.quantiles(ratios, n=4)[0]
    print(f"\nprecision, {make.__name__}, in plain steps: {middle:.1f}", end="")
    print(f" (lower quartile {low:.1f}, limit {LIMIT})", end="")
    assert low < LIMIT * SLACK
