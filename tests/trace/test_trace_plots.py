"""Traces as plots of a report: what they hold is what was measured."""

import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.plots import Curves, HeatMap, Ladder, Table


def plots_of(result):
    return [plot for section in result.sections() for plot in section.plots]


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(16, 8)


def test_losses_are_a_matrix_of_cosines_and_one_row_per_parameter():
    model, x = made()
    loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
    with nabla.trace.losses({"a": loss, "b": -0.5 * loss}, parameters=model) as trace:
        loss.backward()

    matrix, layers = plots_of(trace)

    assert isinstance(matrix, HeatMap) and matrix.scale == "signed"
    assert torch.allclose(torch.tensor(matrix.values), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    assert layers.rows == tuple(trace.layers) and layers.columns == ("a, b",)


def test_samples_are_ranked_by_their_share():
    model, x = made()
    x[5] *= 50
    result = nabla.trace.samples(
        model, nn.CrossEntropyLoss(reduction="none"), (x, torch.arange(16) % 3)
    )

    curve, table = plots_of(result)

    assert isinstance(curve, Curves) and isinstance(table, Table)
    assert [row[0] for row in table.rows] == result.rank("share")
    assert curve.series[0].values[0] == float(result.share.max())


def test_a_loop_shows_its_steps_and_its_layers():
    model, x = made()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with nabla.trace.attach(model, optimizer, every=4) as trace:
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()

    alpha, ladder = plots_of(trace)

    assert alpha.series[0].name == "alpha" and isinstance(ladder, Ladder)
    assert ladder.rungs == tuple(rung.name for rung in trace.signal)
