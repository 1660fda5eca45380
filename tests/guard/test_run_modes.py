"""``nabla run --mode``, ``--stop-on`` and ``nabla sanitize``."""

import textwrap

import pytest
from click.testing import CliRunner

from nabla_core.cli.main import main

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(3, 4)).pow(2).mean() * (1.0 if step < 4 else {factor})
    loss.backward()
    optimizer.step()
print("finished")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NABLA_SELECT", "NUM101,NUM102,NUM103")

    def write(factor):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(SCRIPT).format(factor=factor))
        return str(path)

    return write


@pytest.mark.parametrize("command", [["run", "--mode", "light"], ["run"], ["sanitize"]])
def test_a_clean_script_exits_with_zero(script, command):
    result = CliRunner().invoke(main, [*command, script("1.0")])
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "finished\n"


@pytest.mark.parametrize("command", [["run", "--mode", "deep"], ["sanitize", "--mode", "standard"]])
def test_every_mode_finds_the_bad_step(script, command):
    result = CliRunner().invoke(main, [*command, script("float('inf')")])
    assert result.exit_code == 1
    assert result.stdout == "finished\n"
    assert "NUM103" in result.stderr


def test_a_script_can_be_stopped_before_the_bad_step(script):
    result = CliRunner().invoke(main, ["run", "--stop-on", "nonfinite", script("float('inf')")])
    assert result.exit_code == 1
    assert "finished" not in result.stdout
    assert "step 4 was stopped before SGD.step" in result.stderr
    assert "NUM103" in result.stderr


def test_an_unknown_mode_is_a_usage_error(script):
    result = CliRunner().invoke(main, ["run", "--mode", "fast", script("1.0")])
    assert result.exit_code == 2
    assert "deep" in result.stderr
