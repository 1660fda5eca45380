"""``nabla run --capture`` records a script that knows nothing of it; a step of it is explained."""

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import nabla_replay
from nabla_replay.capture_settings import CaptureSettings
from nabla_replay.replaying.explaining import explain_step

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Softplus(), nn.Dropout(0.1), Log(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
    draw = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randn(40, 4, generator=draw), torch.arange(40) % 2)
    loader = DataLoader(data, batch_size=8, shuffle=True)

    def step(batch):
        x, y = batch
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    return {**parts, "step": step}


if __name__ == "__main__":
    program = build()
    for epoch in range(2):
        for batch in program["loader"]:
            program["step"](batch)
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    file = folder / "train.py"
    file.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "nabla", "run", "--capture", "--select", "NUM", "train.py"]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert "captured" in done.stderr, done.stderr
    spec = importlib.util.spec_from_file_location("captured_train", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (run,) = (folder / ".nabla" / "runs").iterdir()
    return run, module.build


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_an_unmodified_script_is_replayed_from_its_second_step_on(captured):
    run, build = captured
    result = nabla_replay.replay(run, build=build, localize=True)
    assert result.divergence is None, result.format()
    assert [one.step for one in result.steps] == list(range(1, 10))


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Program:
    """Its fifth batch holds a zero, whose logarithm is not finite."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(Log(), nn.Linear(3, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = [torch.rand(4, 3) + 0.1 for _ in range(8)]
        self.loader[5][2, 1] = 0.0

    def step(self, batch):
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def test_a_recorded_step_is_explained_in_deep_mode(tmp_path):
    program = Program()
    with nabla_replay.capture(program.model, program.optimizer, root=tmp_path) as rec:
        for step, batch in enumerate(rec.batches(program.loader)):
            rec.record_step(step=step, loss=program.step(batch))

    healthy = explain_step(rec.run_path, 4, build=Program)
    report = explain_step(rec.run_path, 5, build=Program)

    assert healthy.issues == ()
    found = [issue for issue in report.issues if issue.rule == "NUM101"]
    assert found[0].where.module == "0"
    assert "log" in found[0].where.op
    assert report.sections[0].title.startswith("Step 5 of ")


def test_a_run_lies_where_the_command_began_wherever_the_script_goes(tmp_path):
    moving = SCRIPT.replace("program = build()", "import os; os.chdir('/'); program = build()")
    (tmp_path / "train.py").write_text(moving)
    command = [sys.executable, "-m", "nabla", "run", "--capture", "--select", "NUM", "train.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    (run,) = (tmp_path / ".nabla" / "runs").iterdir()
    assert f"captured .nabla/runs/{run.name}" in done.stderr
    (artifact,) = (tmp_path / ".nabla" / "artifacts").iterdir()
    assert f"nabla inspect .nabla/artifacts/{artifact.name}" in done.stderr


def test_nothing_is_captured_unless_it_was_asked_for():
    assert not CaptureSettings().capture
