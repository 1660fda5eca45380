"""A cause is confirmed when the symptom vanishes with it, and refuted when the symptom stays."""

import contextlib
import json
import sys

import pytest

import nabla
from nabla_causal import explain
from nabla_causal.confirmation import Confirmation, standing
from nabla_core.cli.shell import run_shell
from nabla_core.errors import UsageError
from nabla_core.severity import Severity
from nabla_replay import capture

AT = 20

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

AT = 20


def program(fault):
    torch.manual_seed(0)
    x = torch.randn(480, 8)
    y = x[:, :2].clone()
    if fault == "sample":
        x[16 * AT + 5, 3] = float("nan")
    if fault == "fp16":
        x[16 * AT : 16 * AT + 16] *= 3e4
    if fault == "unit":
        y[16 * AT :] *= 1e4
    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rate = lambda step: 3000.0 if fault == "rate" and step == AT else 1.0
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def step(batch):
        with torch.autocast("cpu", dtype=torch.float16, enabled=fault == "fp16"):
            loss = F.mse_loss(model(batch[0]).float(), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    return dict(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, step=step)
"""

FAULTS = ("sample", "rate", "fp16", "unit")


class Run:
    """A captured run of one fault, and what a guard saw of it."""

    def __init__(self, fault, folder):
        space = {}
        exec(PROGRAM, space)
        self.build = lambda: space["program"](fault)
        made = self.build()
        model, optimizer = made["model"], made["optimizer"]
        others = {"scheduler": made["scheduler"], "loader": made["loader"], "root": folder}
        with (
            contextlib.redirect_stderr(None),
            nabla.guard(model, optimizer=optimizer) as self.monitor,
            capture(model, optimizer, **others, checkpoint_every=10, budget=None) as record,
        ):
            for batch in record.batches(made["loader"]):
                made["step"](batch)
        self.path = record.run_path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {fault: Run(fault, tmp_path_factory.mktemp(fault)) for fault in FAULTS}


def tried(hypothesis, outcome="confirmed"):
    return [one.test for one in hypothesis.confirmations if one.outcome == outcome]


def test_a_live_session_confirms_by_executing_the_step_again(runs):
    best = runs["sample"].monitor.explain().best

    assert best.root.rule == "NUM104"
    assert best.standing == "confirmed"
    assert tried(best) == ["step 20 executed again op by op"]
    assert best.tests == ()
    assert "Confirmed by: step 20 executed again" in best.description
    assert "Confirmed by: step 20" in runs["sample"].monitor.report().causes[0].statement


def test_a_bad_sample_is_confirmed_from_the_run_alone(runs):
    run = runs["sample"]

    best = explain(run.path, build=run.build, confirm=True).best

    assert (best.root.rule, best.root.first_step) == ("NUM104", AT)
    assert tried(best)[1:] == [
        "sample 5 left out of the batch of step 20",
        "the batch of step 20 skipped",
    ]
    assert any(
        "confirmed by: the batch of step 20 skipped" in line for line in best.cause().supports
    )


def test_a_spike_of_the_rate_is_confirmed_by_holding_it(runs):
    run = runs["rate"]

    best = explain(run.monitor, run=run.path, build=run.build, confirm=True).best

    assert best.standing == "confirmed"
    assert "the learning rate held at its value" in tried(best)[0]
    assert best.root.failure == "step_too_large"


def test_an_overflow_is_confirmed_by_computing_the_layer_in_float32(runs):
    run = runs["fp16"]

    best = explain(run.monitor, run=run.path, build=run.build, confirm=True).best

    assert best.root.layer == "0"
    assert "module 0 computed in float32 from step 20 on" in tried(best)


def test_what_is_refuted_falls_below_what_is_confirmed(runs, finding):
    run = runs["rate"]
    issues = [
        finding("RUN502", step=AT),
        finding("RUN204", step=AT, severity=Severity.LOW),
        finding("RUN105", step=AT + 1),
    ]
    assert explain(issues).best.root.rule == "RUN502"

    found = explain(issues, run=run.path, build=run.build, confirm=True)

    assert [one.root.rule for one in found.hypotheses] == ["RUN204", "RUN502"]
    assert [one.standing for one in found.hypotheses] == ["confirmed", "refuted"]
    refuted = found.hypotheses[1]
    assert "still has" in refuted.confirmations[0].reason
    assert "Refuted by: the batch of step 20 skipped" in refuted.description
    assert "refuted by: the batch of step 20 skipped" in found.format()
    assert any("refuted by" in line for line in refuted.cause().contradicts)
    assert refuted.tests != ()


def test_an_explosion_that_none_of_it_explains_refutes_them(runs, finding):
    run = runs["unit"]

    for rule, told in (("RUN502", "refuted"), ("RUN204", "refuted"), ("RUN301", "undecided")):
        issues = [finding(rule, step=AT)]
        (one,) = explain(issues, run=run.path, build=run.build, confirm=True).hypotheses
        assert one.standing == told


def test_a_fault_that_no_replay_can_test_stays_as_it_is(runs, finding):
    run = runs["unit"]
    issues = [finding("AUD401", step=0)]

    before, after = explain(issues), explain(issues, run=run.path, build=run.build, confirm=True)

    assert after.to_dict() == before.to_dict()


def test_a_step_that_was_not_recorded_is_told(runs, finding):
    run = runs["unit"]

    best = explain([finding("RUN204", step=900)], run=run.path, build=run.build, confirm=True).best

    assert best.standing == "undecided"
    assert "step 900 was not recorded" in best.confirmations[0].reason
    assert best.tests


def test_another_program_confirms_nothing(runs, finding):
    issues = [finding("RUN502", step=AT)]

    found = explain(issues, run=runs["sample"].path, build=runs["rate"].build, confirm=True)

    assert found.best.standing == "undecided"
    assert "is not the recorded one" in found.best.confirmations[0].reason


def test_without_a_program_the_curve_of_a_run_is_judged(runs):
    found = explain(runs["sample"].path)

    assert found.best.root.failure == "non_finite"
    assert found.best.standing == "undecided"


def test_the_command_confirms(runs, tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(f"{PROGRAM}\n\ndef build():\n    return program('sample')\n")
    words = ["explain", str(runs["sample"].path), "--build", f"{program}:build", "--confirm"]

    assert run_shell([*words]) == 0
    assert "confirmed by: the batch of step 20 skipped" in capsys.readouterr().out
    assert run_shell([*words, "--format", "json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)["hypotheses"]
    assert best["standing"] == "confirmed"
    assert len(best["confirmations"]) == 3


def test_what_is_missing_to_confirm_is_said(runs, finding, monkeypatch):
    with pytest.raises(UsageError, match="needs the folder of a captured run"):
        explain([finding("RUN204")], confirm=True)
    with pytest.raises(UsageError, match="needs the folder of a captured run"):
        explain(runs["sample"].path, confirm=True)
    with pytest.raises(UsageError, match="--run nosuch: no such folder"):
        explain([finding("RUN204")], run="nosuch")
    monkeypatch.setitem(sys.modules, "nabla_causal.confirming.judging", None)
    with pytest.raises(UsageError, match=r"nabla\[replay\]"):
        explain(runs["sample"].path)


def test_one_test_that_confirms_is_enough():
    def one(outcome):
        return Confirmation(test="t", outcome=outcome, reason="r")

    assert standing(()) == "undecided"
    assert standing((one("undecided"),)) == "undecided"
    assert standing((one("refuted"), one("undecided"))) == "refuted"
    assert standing((one("refuted"), one("confirmed"))) == "confirmed"
