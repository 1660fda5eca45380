import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    x = torch.randn(4, 4)
    x[0, 0] = float("nan") if step == 5 else 0.0
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def nabla_run(tmp_path):
    def run(*options):
        tmp_path.joinpath("train.py").write_text(SCRIPT)
        return subprocess.run(
            [Path(sys.executable).with_name("nabla"), "run", *options, "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return run


def test_an_unknown_sink_is_refused_before_the_script_runs(nabla_run):
    done = nabla_run("--sink", "tensorbord")

    assert done.returncode == 2
    assert "did you mean 'tensorboard'?" in done.stderr


@pytest.mark.slow
def test_a_script_that_knows_nothing_of_it_is_tracked(nabla_run, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    done = nabla_run("--sink", "tensorboard", "-o", "trackers.tensorboard-dir=here")

    assert "NUM104" in done.stderr
    assert "NAB004" not in done.stderr
    assert list(tmp_path.glob("here/events*"))
