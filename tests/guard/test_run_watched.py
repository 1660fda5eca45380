"""``nabla run`` on whole training scripts: verdicts, exit codes, and where the report goes."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PYTHON = [sys.executable]
NABLA = [str(Path(sys.executable).with_name("nabla")), "--no-config"]

TRAINING = """
    import sys, threading
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def train(steps):
        for step in range(steps):
            inputs = torch.randn(16, 4)
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            print(step, loss.item().hex(), torch.rand(()).item(), flush=True)

"""
CLEARED_TOO_LATE = TRAINING.replace("            optimizer.zero_grad()\n", "").replace(
    "loss.backward()", "loss.backward(); optimizer.zero_grad()"
)


def script_in(folder, training, ending="train(6)"):
    path = folder / "train.py"
    path.write_text(textwrap.dedent(training) + ending + "\n")
    return path.name


def call(folder, *words):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NABLA")}
    return subprocess.run(
        list(words), cwd=folder, capture_output=True, text=True, timeout=120, env=environment
    )


def rules_in(path):
    return [issue["rule"] for issue in json.loads(path.read_text())["issues"]]


def test_a_healthy_script_ends_as_with_python_and_has_no_issue(tmp_path):
    script = script_in(tmp_path, TRAINING)

    plain = call(tmp_path, *PYTHON, script)
    watched = call(tmp_path, *NABLA, "run", "--format", "json=report.json", script)

    assert (watched.returncode, watched.stdout) == (0, plain.stdout)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["issues"], report["run"]["steps"], report["exit_code"]) == ([], 6, 0)


def test_gradients_cleared_before_the_step_are_found_and_told_live(tmp_path):
    script = script_in(tmp_path, CLEARED_TOO_LATE)

    plain = call(tmp_path, *PYTHON, script)
    watched = call(tmp_path, *NABLA, "run", "--format", "json=report.json", script)

    assert (watched.returncode, watched.stdout) == (1, plain.stdout)
    assert rules_in(tmp_path / "report.json") == ["AUD101"]
    assert watched.stderr.startswith("nabla: AUD101 step-without-gradient at step ")


def test_threads_other_folders_and_fail_on(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    ending = "import os; os.chdir('elsewhere'); threading.Thread(target=train, args=(6,)).start()"
    script = script_in(tmp_path, CLEARED_TOO_LATE, ending)

    watched = call(
        tmp_path, *NABLA, "-q", "run", "--fail-on", "critical", "--output", "report.json", script
    )

    assert watched.returncode == 0  # the issue is below critical
    assert "nabla: AUD101" not in watched.stderr  # -q: no live lines
    assert rules_in(tmp_path / "report.json") == ["AUD101"]


def test_a_script_that_raises_keeps_its_traceback_and_still_gets_a_report(tmp_path):
    ending = "train(6)\nmodel(torch.ones(2, 3))"
    script = script_in(tmp_path, CLEARED_TOO_LATE, ending)

    plain = call(tmp_path, *PYTHON, script)
    watched = call(tmp_path, *NABLA, "-q", "run", "--output", "report.json", script)

    assert (watched.returncode, watched.stdout) == (1, plain.stdout)
    assert watched.stderr.startswith(plain.stderr)
    assert rules_in(tmp_path / "report.json") == ["AUD101"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--output", "missing/report.json"], "missing"),
        (["--output", "."], "folder"),
        (["--format", "jsno=x"], "json"),
        (["--select", "AUD1O1"], "AUD101"),
        (["--fial-on", "high"], "--fail-on"),
    ],
)
def test_mistakes_are_told_before_the_script_runs(tmp_path, words, told):
    script = script_in(tmp_path, "open('started', 'w').close()", "")

    answer = call(tmp_path, *NABLA, "run", *words, script)

    assert answer.returncode == 2
    assert told in answer.stderr and "Traceback" not in answer.stderr
    assert not (tmp_path / "started").exists()
