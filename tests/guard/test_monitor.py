"""The public ``guard``: arguments, scope and report."""

import math
from dataclasses import fields

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from nabla_core.errors import CheckFailed, UsageError
from nabla_guard import guard, sanitize
from nabla_guard.options import GuardArguments, GuardOptions


def test_it_says_which_modes_exist():
    with pytest.raises(UsageError, match="'light', 'standard', 'deep'"):
        guard(mode="fast")


@pytest.mark.parametrize("argument", [{"model": 3}, {"optimizer": 3}, {"optimizer": [3]}])
def test_it_says_what_it_needs(argument):
    with pytest.raises((UsageError, TypeError)):
        guard(**argument)


def test_a_model_without_parameters_is_no_error():
    with guard(nn.Flatten()) as monitor:
        nn.Flatten()(torch.ones(2, 2, 2))
    assert monitor.report().passed
    assert monitor.steps == 0


def test_only_the_given_optimizer_is_judged(make_loop):
    mine, other = make_loop(), make_loop()
    with guard(mine.model, optimizer=mine.optimizer) as monitor:
        other.run(5)
        assert monitor.steps == 0
        mine.run(2)
    assert monitor.steps == 2


def test_only_optimizers_of_the_given_model_are_judged(make_loop):
    mine, other = make_loop(), make_loop()
    with guard(mine.model) as monitor:
        other.run(5)
        mine.run(2)
    assert monitor.steps == 2


def test_the_signals_of_a_step_are_those_of_the_loop(loop):
    records = []
    with guard() as monitor:
        monitor.session.step = records.append
        losses = loop.run(3)
    grad_norm = torch.stack([p.grad.norm() for p in loop.model.parameters()]).norm()
    assert [record.signals["loss"] for record in records] == pytest.approx(
        [float(loss) for loss in losses]
    )
    assert records[-1].signals["grad_norm"] == pytest.approx(float(grad_norm), rel=1e-5)
    assert records[-1].signals["lr"] == 1e-2
    assert [record.step for record in records] == [0, 1, 2]


def test_the_loss_is_the_one_before_loss_scaling(make_loop):
    loop = make_loop()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    records, losses = [], []
    with guard() as monitor:
        monitor.session.step = records.append
        for x, y in loop.batches(3):
            loop.optimizer.zero_grad()
            loss = loop.loss(x, y)
            scaler.scale(loss).backward()
            scaler.step(loop.optimizer)
            scaler.update()
            losses.append(float(loss.detach()))
    assert [record.signals["loss"] for record in records] == pytest.approx(losses)


def test_the_loss_of_accumulated_micro_batches_is_their_mean(loop):
    records = []
    with guard() as monitor:
        monitor.session.step = records.append
        loop.optimizer.zero_grad()
        losses = [loop.loss(x, y) for x, y in loop.batches(4)]
        for loss in losses:
            loss.backward()
        loop.optimizer.step()
    mean = sum(float(loss.detach()) for loss in losses) / 4
    assert records[0].signals["loss"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"moed": "deep"}, "did you mean 'mode'"),
        ({"every": 0}, "at least 1"),
        ({"every": "often"}, "a whole number"),
        ({"modules": 3}, "a list"),
        ({"capture_source": "perhaps"}, "true or false"),
        ({"extreme_value_threshold": -1.0}, "at least 0"),
        ({"on_nonfinite": "stopp"}, "did you mean 'stop'"),
        ({"colour": 1}, "the options are mode, modules"),
    ],
)
def test_a_wrong_option_says_what_is_allowed(given, said):
    with pytest.raises(UsageError, match=said):
        guard(**given)


def test_all_wrong_options_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        guard(every=0, mode="fast", modus=1)
    assert str(caught.value).count("guard(") == 3


def test_the_typed_arguments_are_the_options():
    assert list(GuardArguments.__annotations__) == [field.name for field in fields(GuardOptions)]


def test_the_configuration_gives_what_the_call_does_not(tmp_path, monkeypatch):
    (tmp_path / "nabla.toml").write_text('[guard]\nmode = "deep"\nevery = 7\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NABLA_GUARD_EXCLUDE", "head.*,Dropout")
    options = guard(every=3).options
    assert (options.mode, options.every, options.exclude) == ("deep", 3, ("head.*", "Dropout"))


def test_contracts_are_accepted_and_said_to_be_open(loop):
    with guard(contracts=["grad-norm"]) as monitor:
        loop.run(1)
    assert any("'grad-norm'" in entry.reason for entry in monitor.report().not_evaluated)


def test_bounds_are_those_of_the_call():
    monitor = guard(max_events=2, max_issues=3)
    with monitor:
        for value in range(4):
            monitor.observe(torch.tensor(float(value)))
    assert [event.values for event in monitor.events] == [(2.0, 2.0), (3.0, 3.0)]
    assert monitor.session.bounds.max_issues == 3


# ---------------------------------------------------------------------- every
@pytest.mark.parametrize("mode", ["light", "standard", "deep"])
def test_between_measured_steps_nothing_is_read(loop, mode, monkeypatch):
    monkeypatch.setenv("NABLA_SELECT", "NUM101,NUM102,NUM103")
    records = []
    with guard(mode=mode, every=4) as monitor:
        monitor._loop.wanted |= {"layers"}
        monitor.session.step = records.append
        loop.run(20)
    measured = [record.step for record in records if "loss" in record.signals]
    assert measured == [0, 4, 8, 12, 16]
    assert [record.step for record in records if record.layers] == (
        [] if mode == "light" else measured
    )


def test_a_step_between_is_not_read_from_its_device(loop, monkeypatch):
    monkeypatch.setenv("NABLA_SELECT", "NUM101,NUM102,NUM103")
    loop.optimizer = torch.optim.SGD(loop.model.parameters(), 1e-2)
    with guard(every=1000):
        loop.run(10)
        reads = []

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                reads.append(func._schema.name)
                return func(*args, **(kwargs or {}))

        loop.optimizer.zero_grad()
        loss = loop.loss(*loop.batches(1)[0])
        loss.backward()
        with Count():
            loop.optimizer.step()
    assert "aten::_local_scalar_dense" not in reads
    assert "aten::aminmax" not in reads


# ---------------------------------------------------------------------- observe
def test_a_finite_tensor_becomes_an_event():
    with guard() as monitor:
        assert monitor.observe(torch.tensor([1.0, -3.0]), "margin")
    (event,) = monitor.events
    assert (event.kind, event.name, event.values) == ("observed", "margin", (-3.0, 1.0))
    assert event.where.file.endswith("test_monitor.py")
    assert monitor.issues == ()


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: torch.tensor([0.0, math.nan]), "NUM104"),
        (lambda: nn.Parameter(torch.tensor([math.inf])), "NUM105"),
        (lambda: nn.Parameter(torch.zeros(2)).log(), "NUM101"),
    ],
)
def test_what_is_not_finite_is_an_issue_at_the_line_of_the_call(make, rule):
    with guard() as monitor:
        assert not monitor.observe(make(), "it")
    (issue,) = monitor.issues
    assert issue.rule == rule
    assert issue.where.function == "test_what_is_not_finite_is_an_issue_at_the_line_of_the_call"


def test_only_tensors_can_be_observed():
    with guard() as monitor, pytest.raises(UsageError, match=r"torch\.Tensor"):
        monitor.observe([1.0])


# ---------------------------------------------------------------------- sanitize
def test_finite_tensors_pass_with_their_ranges():
    result = sanitize(torch.tensor([1.0, 2.0]), weights={"a": torch.tensor(3)})
    assert result.passed
    assert [(found.name, found.low, found.high) for found in result.ranges] == [
        ("argument 0", 1.0, 2.0)
    ]
    result.raise_if_failed()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_each_tensor_that_is_not_finite_is_an_issue(bad, dtype):
    values = torch.ones(2, 3, dtype=dtype)
    values[1, 2] = bad
    result = sanitize(torch.ones(2), batch={"x": values, "y": torch.ones(1)})
    (issue,) = result.issues
    assert not result.passed
    assert issue.rule == "NUM104"
    assert "batch['x']" in issue.message
    assert "1 of 6" in issue.message
    assert "[1, 2]" in issue.message
    with pytest.raises(CheckFailed, match="batch"):
        result.raise_if_failed()


def test_a_tensor_without_values_is_not_evaluated():
    result = sanitize(torch.empty(2, device="meta"))
    assert result.passed
    assert "meta" in result.not_evaluated[0].reason


@pytest.mark.parametrize(("args", "said"), [((), "at least one"), ((3,), "holds no tensor")])
def test_sanitize_says_what_it_needs(args, said):
    with pytest.raises(UsageError, match=said):
        sanitize(*args)
