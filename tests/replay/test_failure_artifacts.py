"""A number that is not finite leads to an artifact: private, checked, and reproducible."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import nabla_replay
from nabla_core.artifacts.reading import read_artifact
from nabla_core.issue import Issue
from nabla_core.severity import Severity
from nabla_guard import guard
from nabla_replay.failures.links import RunLink
from nabla_replay.inspecting.path import inspect_path


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Program:
    """Its fifth batch holds a zero, whose logarithm is not finite."""

    zero_at = 5

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(Log(), nn.Linear(3, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loader = [torch.rand(4, 3) + 0.1 for _ in range(8)]
        if self.zero_at is not None:
            self.loader[self.zero_at][2, 1] = 0.0

    def step(self, batch):
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Healthy(Program):
    zero_at = None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NABLA_REPLAY_ARTIFACT_DIR", str(tmp_path / "artifacts"))
    return tmp_path / "artifacts"


def watched(program, tmp_path, **options):
    watch = guard(program.model, optimizer=program.optimizer, **{"shadow": "off", **options})
    capture = nabla_replay.capture(program.model, program.optimizer, root=tmp_path / "runs")
    try:
        with watch as monitor, capture as rec:
            for batch in rec.batches(program.loader):
                program.step(batch)
    finally:
        monitor.report()
    return rec.run_path


def documents(artifact):
    return {path.name: json.loads(path.read_text()) for path in artifact.glob("*.json")}


def test_a_watched_and_captured_run_leaves_the_evidence_of_its_failure(tmp_path, folder, capsys):
    run = watched(Program(), tmp_path)

    (artifact,) = folder.iterdir()
    found = documents(artifact)
    assert [one["rule"] for one in found["issues.json"]] == ["NUM101"]
    assert found["reproduction.json"]["step"] == 5
    assert (artifact / found["reproduction.json"]["run"]).resolve() == run.resolve()
    assert found["setting.json"]["where"]["module"] == "0"
    assert read_artifact(artifact).faults == ()
    assert not read_artifact(artifact).manifest.raw_tensors
    assert str(artifact) in capsys.readouterr().err
    shown = inspect_path(artifact)
    assert shown.passed
    assert dict(shown.facts)["verdict"].startswith("NUM101")


def test_a_run_that_was_stopped_in_its_failing_step_can_be_explained(tmp_path, folder):
    program = Program()
    with pytest.raises(Exception, match="step 5 was stopped"):
        watched(program, tmp_path, on_nonfinite="stop")
    (run,) = (tmp_path / "runs").iterdir()
    (artifact,) = folder.iterdir()
    step = documents(artifact)["reproduction.json"]["step"]

    report = nabla_replay.explain_step(run, step, build=Program)

    assert [issue.rule for issue in report.issues if issue.rule.startswith("NUM")] == ["NUM101"]
    assert "never recorded" in " ".join(report.sections[0].lines)


def test_a_healthy_run_leaves_nothing(tmp_path, folder):
    watched(Healthy(), tmp_path)
    assert not folder.exists()


def test_nothing_is_kept_unless_it_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watched(Program(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_without_a_capture_the_verdict_is_kept_and_no_script(tmp_path, folder):
    program = Program()
    with guard(program.model, optimizer=program.optimizer, shadow="off") as monitor:
        for batch in program.loader:
            program.step(batch)
    monitor.report()
    (artifact,) = folder.iterdir()
    assert not list(artifact.glob("reproduction*"))
    assert read_artifact(artifact).faults == ()


def test_a_folder_that_cannot_be_written_is_told_and_ends_nothing(tmp_path, folder, capsys):
    folder.write_text("a file")
    watched(Program(), tmp_path)
    assert "the evidence is not kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([], None), ([(0, 1), (1, 2)], 6), ([(0, 1), (1, 3)], None), ([(3, 0), (4, 1)], 2)],
)
def test_a_step_is_named_only_while_both_counts_run_together(tmp_path, counts, expected):
    link = RunLink(folder=tmp_path)
    for watched_step, recorded in counts:
        link.note(watched_step, recorded)
    issue = Issue(rule="NUM101", name="x", severity=Severity.HIGH, message="m", step=5)
    assert link.step_of(issue) == expected


SCRIPT = """
import torch
from torch import nn


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


def build():
    torch.manual_seed(0)
    model = nn.Sequential(Log(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = [torch.rand(4, 3) + 0.1 for _ in range(8)]
    rows[5][2, 1] = 0.0
    loader = torch.utils.data.DataLoader(rows, batch_size=None)

    def step(batch):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return {"model": model, "optimizer": optimizer, "loader": loader, "step": step}


if __name__ == "__main__":
    program = build()
    for batch in program["loader"]:
        program["step"](batch)
"""


def test_a_script_that_is_run_and_captured_leaves_a_script_that_shows_the_fault(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    options = {
        "cwd": tmp_path,
        "capture_output": True,
        "text": True,
        "env": {**os.environ, "OMP_NUM_THREADS": "1"},
    }
    command = ["-m", "nabla", "run", "--capture", "--select", "NUM", "--mode", "light", "train.py"]
    done = subprocess.run([sys.executable, *command], **options)
    (artifact,) = (tmp_path / ".nabla" / "artifacts").iterdir()
    assert f"nabla inspect .nabla/artifacts/{artifact.name}" in done.stderr

    shown = subprocess.run(
        [sys.executable, artifact / "reproduction.py", "train.py:build"], **options
    )

    assert shown.returncode == 1, shown.stderr
    assert "NUM101" in shown.stdout
