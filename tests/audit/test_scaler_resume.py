"""AUD601: a loss scale that a resume loses."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def build(growth_interval):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    return model, optimizer, torch.amp.GradScaler("cpu", growth_interval=growth_interval)


def fit(model, optimizer, scaler, steps=7):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), x[:, :3].argmax(-1))).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize(
    ("restored", "growth_interval", "severities"),
    [(False, 3, ["medium"]), (False, 100, ["info"]), (True, 3, [])],
)
def test_a_scale_that_is_not_restored(audited, tmp_path, restored, growth_interval, severities):
    def program():
        parts = build(growth_interval)
        fit(*parts)
        names = ("model", "optimizer", "scaler")
        state = {name: part.state_dict() for name, part in zip(names, parts, strict=True)}
        torch.save(state, tmp_path / "last.pt")
        state = torch.load(tmp_path / "last.pt")
        again = build(growth_interval)
        for name, part in zip(names, again, strict=True):
            if name != "scaler" or restored:
                part.load_state_dict(state[name])
        fit(*again)

    found = [issue for issue in audited(program) if issue.rule == "AUD601"]
    assert [issue.severity.label for issue in found] == severities


def test_fine_tuning_takes_the_weights_only(audited, tmp_path):
    def program():
        parts = build(3)
        fit(*parts)
        names = ("model", "optimizer", "scaler")
        state = {name: part.state_dict() for name, part in zip(names, parts, strict=True)}
        torch.save(state, tmp_path / "last.pt")
        model, _, scaler = build(100)
        model.load_state_dict(torch.load(tmp_path / "last.pt")["model"])
        fit(model, torch.optim.SGD(model.parameters(), 0.01), scaler)

    assert {issue.severity.label for issue in audited(program)} <= {"info"}
