"""A captured run is held to contracts: what is broken is an issue of the run, and stands in it."""

import pytest
import torch
from torch import nn

import nabla_contracts as contracts
import nabla_replay
from nabla_contracts import ContractViolation
from nabla_core.errors import UsageError
from nabla_guard import guard
from nabla_replay.inspecting.path import inspect_path


class Loop:
    """Twelve small steps; the batch of one of them is in the wrong unit."""

    def __init__(self, bad=7):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-9)
        self.bad = bad

    def run(self, steps=12):
        for step in range(steps):
            x = torch.randn(8, 4) * (1e4 if step == self.bad else 1.0)
            loss = self.model(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def capture(self, root, **options):
        return nabla_replay.capture(self.model, self.optimizer, root=root, **options)


CALM = (contracts.loss.finite(), contracts.gradient.norm(max=100.0))


def notes(run):
    return [text for name, text in inspect_path(run).facts if name == "verdict"]


def test_a_broken_contract_is_an_issue_of_the_run(tmp_path, capsys):
    loop = Loop()
    with loop.capture(tmp_path, contracts=CALM) as rec:
        loop.run()

    (issue,) = rec.issues
    assert (issue.rule, issue.step) == ("CON102", 7)
    assert issue.message in capsys.readouterr().err
    assert len(notes(rec.run_path)) == 1
    assert "CON102 at step 7" in notes(rec.run_path)[0]
    assert rec.not_evaluated == ()


def test_a_run_that_keeps_its_contracts_has_none(tmp_path, capsys):
    loop = Loop(bad=None)
    with loop.capture(tmp_path, contracts=CALM) as rec:
        loop.run()
    assert rec.issues == ()
    assert notes(rec.run_path) == []
    assert capsys.readouterr().err == ""


def test_only_contracts_judge_a_capture(tmp_path):
    loop = Loop(bad=None)
    with loop.capture(tmp_path, contracts=[contracts.loss.finite()]) as rec:
        for _ in range(3):
            loop.model(torch.randn(8, 4)).square().mean().backward()
            loop.optimizer.step()  # zero_grad is forgotten: a matter of the audit
    assert rec.issues == ()


def test_raise_on_failure_ends_the_run_before_the_optimizer_acts(tmp_path):
    loop = Loop()
    with (
        pytest.raises(ContractViolation, match="CON102"),
        loop.capture(tmp_path, contracts=CALM, raise_on_failure=True) as rec,
    ):
        loop.run()

    assert [issue.rule for issue in rec.issues] == ["CON102"]
    found = nabla_replay.bisect(rec.run_path, metric="loss", greater_than=1e30)
    assert found.first_bad_step is None
    facts = dict(inspect_path(rec.run_path).facts)
    assert facts["steps"].startswith("0 to 6")
    assert "exception: ContractViolation" in facts["segments"]


def test_a_contract_of_layers_and_one_of_changes_are_held(tmp_path):
    loop = Loop(bad=None)
    wanted = [contracts.tensor.finite(), contracts.parameter.change(max_relative=1e-12)]
    with loop.capture(tmp_path, contracts=wanted) as rec:
        loop.run(4)
    assert {issue.rule for issue in rec.issues} == {"CON104"}


def test_steps_are_recorded_as_without_contracts(tmp_path):
    runs = []
    for given in ((), CALM):
        loop = Loop()
        with loop.capture(tmp_path, contracts=given, budget=None) as rec:
            loop.run()
        runs.append(rec.run_path)
    first, second = (_steps(run) for run in runs)
    assert first == second


def _steps(run):
    from nabla_replay.store.reader import RunReader

    with RunReader.open(run) as reader:
        return [(step.step, step.loss, step.digests, step.vectors) for step in reader.steps()]


def test_a_session_around_the_capture_hears_of_it_once(tmp_path, capsys):
    loop = Loop()
    with (
        guard(loop.model, optimizer=loop.optimizer) as monitor,
        loop.capture(tmp_path, contracts=CALM) as rec,
    ):
        loop.run()
    found = [issue for issue in monitor.report().issues if issue.rule == "CON102"]
    assert len(found) == 1
    assert found[0].count == 1
    assert len(notes(rec.run_path)) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("inside", [False, True])
def test_what_a_guard_finds_stands_in_the_run(tmp_path, inside):
    loop = Loop()
    watch = guard(loop.model, optimizer=loop.optimizer, mode="light")
    capture = loop.capture(tmp_path)
    outer, inner = (capture, watch) if inside else (watch, capture)
    with outer, inner:
        loop.run(3)
        loop.model(torch.full((8, 4), float("nan"))).sum().backward()
        loop.optimizer.step()
    assert any(text.startswith("NUM10") for text in notes(capture.run_path))


def test_a_name_that_nobody_declared_is_not_evaluated(tmp_path):
    loop = Loop()
    with loop.capture(tmp_path, contracts=["calm"]) as rec:
        loop.run(2)
    (missing,) = rec.not_evaluated
    assert "'calm'" in missing.reason


def test_a_configured_contract_is_held_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "nabla.toml").write_text(
        '[contracts.hold]\ncalm = { kind = "gradient.norm", max = 100.0 }\n'
    )
    monkeypatch.chdir(tmp_path)
    loop = Loop()
    with loop.capture(tmp_path, contracts=["calm"]) as rec:
        loop.run()
    assert [issue.rule for issue in rec.issues] == ["CON102"]
    assert "'calm'" in rec.issues[0].message


def test_what_is_no_contract_is_refused_at_once(tmp_path):
    loop = Loop()
    with pytest.raises(UsageError, match="capture\\(contracts="):
        loop.capture(tmp_path, contracts=[3])
