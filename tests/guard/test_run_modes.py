"""``nabla run --mode``, ``--stop-on`` and ``nabla sanitize``, as a person calls them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NABLA = [str(Path(sys.executable).with_name("nabla")), "--no-config"]
SELECT = ["--select", "NUM101,NUM102,NUM103"]

SCRIPT = """
import torch
from torch import nn

torch.set_num_threads(1)
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
def nabla(tmp_path):
    def call(*words, factor="1.0"):
        (tmp_path / "train.py").write_text(SCRIPT.format(factor=factor))
        return subprocess.run(
            [*NABLA, words[0], *SELECT, *words[1:], "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env={name: value for name, value in os.environ.items() if "NABLA" not in name},
        )

    return call


@pytest.mark.parametrize("command", [["run", "--mode", "light"], ["sanitize"]])
def test_a_clean_script_exits_with_zero(nabla, command):
    result = nabla(*command)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "finished\n"


def test_sanitize_finds_the_bad_step(nabla):
    result = nabla("sanitize", factor="float('inf')")
    assert result.returncode == 1
    assert result.stdout == "finished\n"
    assert "NUM103" in result.stderr


def test_a_script_can_be_stopped_before_the_bad_step(nabla):
    result = nabla("run", "--stop-on", "nonfinite", factor="float('inf')")
    assert result.returncode == 1
    assert "finished" not in result.stdout
    assert "step 4 was stopped before SGD.step" in result.stderr
    assert "NUM103" in result.stderr


def test_an_unknown_mode_is_a_usage_error(nabla):
    result = nabla("run", "--mode", "fast")
    assert result.returncode == 2
    assert "'deep'" in result.stderr
