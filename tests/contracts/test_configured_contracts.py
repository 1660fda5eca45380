"""``[tool.nabla.contracts]``: held by everything that watches, and wrong tables told at once."""

import subprocess
import sys

import pytest
import torch

import nabla
from nabla_contracts import gradient, tensor
from nabla_contracts.settings import ContractSettings
from nabla_core.config import Config
from nabla_core.discovery import FoundPlugin
from nabla_core.errors import ConfigError
from nabla_core.host import PluginHost
from nabla_core.layers import Layer
from nabla_guard import guard

TABLE = """
[contracts.hold]
small-steps = { kind = "gradient.norm", max = 1e-9, parameters = "0.*", severity = "medium" }
it-learns = { kind = "parameter.change", min-relative = 1e-12, every = 2 }
"""

TRAINING = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
print("the end")
"""


def settings(**hold):
    found = FoundPlugin(
        name="contracts", module="nabla_contracts.plugin", distribution="nabla-contracts"
    )
    host = PluginHost([found])
    layer = Layer(source="nabla.toml", style="file", values={"contracts": {"hold": hold}})
    return Config(host, [layer]).options(ContractSettings)


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "nabla.toml").write_text(TABLE)
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(project, *options):
    command = [sys.executable, "-m", "nabla", "run", *options, "train.py"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_nabla_run_holds_a_script_to_them(project):
    done = run(project, "--fail-on", "medium")

    assert done.returncode == 1
    assert "CON102" in done.stderr and "small-steps" in done.stderr
    assert "it-learns" not in done.stderr
    assert done.stdout == "the end\n"


@pytest.mark.slow
def test_a_breach_can_end_a_script(project):
    done = run(project, "-o", "contracts.raise-on-failure=true")

    assert done.returncode == 1
    assert "ContractViolation" in done.stderr
    assert done.stdout == ""


def test_a_wrong_table_is_a_mistake_of_the_person(project):
    (project / "nabla.toml").write_text("[contracts.hold]\na = { kind = 'gradient.nrm' }\n")

    done = run(project)

    assert done.returncode == 2
    assert "did you mean 'gradient.norm'" in done.stderr


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        settings(
            a={"kind": "gradient.norm"},
            b={"kind": "loss.finit"},
            c={"max": 1.0},
            d={"kind": "gradient.norm", "max": "much", "parameter": "x", "every": 0},
            e={"kind": "training.loss_not_exploding", "window": 2.5},
        )

    text = str(caught.value)
    for part in (
        "hold] a: gradient.norm: needs min, max or both",
        "did you mean 'loss.finite'",
        "c: kind is missing",
        "d: max = 'much': needs a number",
        "parameter: unknown key (did you mean 'parameters'?)",
        "e: window = 2.5: needs a whole number",
    ):
        assert part in text
    assert len(caught.value.mistakes) == 6


def test_every_kind_can_be_declared():
    hold = {
        "a": {"kind": "loss.finite"},
        "b": {"kind": "gradient.norm", "max": 1, "min": 0.5, "parameters": ["x.*", "y.*"]},
        "c": {"kind": "tensor.finite", "module": "attention.*"},
        "d": {"kind": "parameter.change", "min-relative": 1e-8, "every": 100},
        "e": {"kind": "training.loss_not_exploding", "max-ratio": 10, "window": 20},
        "f": {"kind": "math:isfinite", "needs": ["loss"], "consecutive": 2},
    }

    assert dict(settings(**hold).hold).keys() == hold.keys()


def test_a_predicate_of_a_module_is_held(loop, project, monkeypatch):
    (project / "checks_of_project.py").write_text("def small(step):\n    return step.loss < 0\n")
    (project / "nabla.toml").write_text(
        "[contracts.hold]\nsmall = { kind = 'checks_of_project:small' }\n"
    )
    monkeypatch.syspath_prepend(str(project))

    with guard(loop.model, shadow="off") as monitor:
        loop.train(3)

    assert [i.rule for i in monitor.issues if i.rule.startswith("CON")] == ["CON199"]


def test_a_predicate_that_cannot_be_imported_is_not_evaluated(loop, project):
    (project / "nabla.toml").write_text("[contracts.hold]\nx = { kind = 'no_such_module:f' }\n")

    with guard(loop.model, shadow="off") as monitor:
        loop.train(3)

    (issue,) = [i for i in monitor.report().issues if i.rule.startswith("CON")]
    assert issue.rule == "CON901"
    assert "no_such_module" in issue.message


def test_guard_knows_the_names_of_configured_contracts(loop, project):
    with guard(loop.model, contracts=["small-steps", "unknown"], shadow="off") as monitor:
        loop.train(3)
    report = monitor.report()

    assert "CON102" in {issue.rule for issue in report.issues}
    assert [e.reason for e in report.not_evaluated if e.rule == "CON"] == [
        "contract 'unknown': [tool.nabla.contracts.hold] declares none of this name"
    ]


def test_watch_holds_contracts_with_a_model(loop):
    contracts = [gradient.norm(max=1e-9), tensor.finite()]
    with nabla.watch(loop.model, loop.optimizer, contracts=contracts, quiet=True) as watched:
        loop.train(5)
    report = watched.finish()

    assert [i.rule for i in report.issues if i.rule.startswith("CON")] == ["CON102"]


def test_watch_holds_contracts_with_rows():
    watched = nabla.watch(contracts=[gradient.norm(max=10.0)], raise_on_failure=True, quiet=True)
    watched.log(0, 1.0, grad_norm=9.0)

    with pytest.raises(nabla.contracts.ContractViolation, match="step 1"):
        watched.log(1, 1.0, grad_norm=11.0)


def test_a_scaled_fused_step_is_judged_by_its_unscaled_gradients(make_loop, held):
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    loop = make_loop(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def train():
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(4, 6)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    contracts = [gradient.norm(max=50.0), gradient.norm(max=50.0, parameters="weight")]

    assert held(loop, *contracts, train=train) == []
