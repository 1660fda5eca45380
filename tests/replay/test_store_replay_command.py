"""The whole way of a person: capture, find the bad step, execute it again, see why."""

import subprocess
import sys

import pytest

from nabla_core.cli.shell import run_shell

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset

import nabla_replay


def build():
    torch.manual_seed(0)
    samples = torch.randn(128, 8)
    samples[100, 3] = 1000.0
    layers = torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 3)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        loss = torch.exp(model(batch[0])).log().mean().square()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    loader = DataLoader(TensorDataset(samples), batch_size=16)
    return {"model": model, "optimizer": optimizer, "loader": loader, "step": step}


if __name__ == "__main__":
    made = build()
    parts = made["model"], made["optimizer"]
    with nabla_replay.capture(*parts, loader=made["loader"], checkpoint_every=4, root=".") as rec:
        for batch in rec.batches(made["loader"]):
            made["step"](batch)
    print(rec.run_path)
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Return the program and the run that it left, captured in a process of its own."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return folder / "program.py", folder / done.stdout.split()[-1]


@pytest.fixture
def nabla(capsys):
    def run(*words):
        code = run_shell(["--no-plugins", "--no-config", *map(str, words)])
        return code, capsys.readouterr().out

    return run


def test_the_steps_of_another_process_are_executed_again_exactly(captured, nabla):
    program, run = captured

    code, out = nabla("replay", run, "--build", f"{program}:build", "--to", 5)

    assert code == 0 and "6 of 6 steps match bit by bit" in out


def test_a_program_that_was_changed_since_is_told_apart(captured, nabla):
    program, run = captured
    changed = program.with_name("changed.py")
    changed.write_text(PROGRAM.replace("Dropout(0.1)", "Dropout(0.2)"))

    code, out = nabla("replay", run, "--build", f"{changed}:build", "--from", 2, "--to", 5)

    assert code == 1 and "REP101" in out


def test_the_bad_step_is_found_and_explained(captured, nabla):
    program, run = captured

    code, out = nabla("bisect", run, "--metric", "loss", "--nonfinite", "--fail-on", "medium")
    assert code == 1 and "Step 6 is the first bad one" in out

    code, out = nabla("replay", run, "--build", f"{program}:build", "--explain-step", 6)
    assert code == 1 and "NUM103" in out and "op exp, sample 4" in out
