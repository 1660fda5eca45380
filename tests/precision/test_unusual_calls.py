"""Models that write into their weights, or run a module inside a transform."""

import pytest
import torch
from torch import nn

CE = nn.CrossEntropyLoss()
OWN = (torch.float16, torch.float32)


def test_a_table_that_is_scaled_in_place_is_left_as_it_was(audited, named):
    model = nn.Sequential(nn.Embedding(10, 4, max_norm=1.0), nn.Flatten(), nn.Linear(8, 3))
    before = model[0].weight.detach().clone()

    report = audited(
        model,
        torch.randint(10, (16, 2)),
        torch.randint(3, (16,)),
        loss_fn=CE,
        candidate_dtypes=OWN,
    )

    assert torch.equal(model[0].weight, before)
    assert named(report) == []


class RowByRow(nn.Module):
    """Calls a layer, and something of its own, once per row under ``vmap``."""

    def __init__(self, after):
        super().__init__()
        self.layer, self.head, self.after = nn.Linear(8, 8), nn.Linear(8, 3), after

    def forward(self, x):
        rows = torch.vmap(lambda row: self.after(torch.tanh(self.layer(row))))
        return self.head(rows(x))


@pytest.mark.parametrize("is_faulty", [False, True])
def test_what_runs_under_a_transform_is_judged_with_the_code_around_it(
    audited, named, parts, is_faulty
):
    model = RowByRow(parts["shift"]() if is_faulty else nn.GELU())

    report = audited(model, torch.randn(32, 8), torch.randint(3, (32,)), loss_fn=CE)

    assert [place for _, place, _ in named(report)] == ([""] if is_faulty else [])
    assert [row.path for row in report.modules] == ["", "head"]
