"""What an audit leaves alone, what it says it cannot judge, and its results."""

import json
import random
import subprocess
import sys

import pytest
import torch
from torch import nn

import nabla
import nabla_precision
from nabla_core.errors import InputError, UsageError

CE = nn.CrossEntropyLoss()


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def small():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def batch():
    return torch.randn(16, 8), torch.randint(3, (16,))


def test_an_exact_module_has_no_error(audited):
    model = nn.Sequential(nn.Linear(8, 8), Double())

    row = audited(model, torch.randn(16, 8)).modules[1]

    assert row.path == "1"
    assert {m.local_error for m in row.measurements.values()} == {0.0}
    assert row.recommended == "float16"


def test_inherited_errors_are_shown_and_not_judged(audited, parts):
    model = nn.Sequential(parts["shift"](), nn.Linear(8, 8))

    _, behind = audited(model, torch.randn(16, 8)).modules

    found = behind.measurements["float16"]
    assert found.propagated_error > 20 * found.limit / 8 > found.local_error
    assert found.fits


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(8, 8), nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(8)
        self.calls, self.cache = 0, None
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.calls += 1
        y = self.drop(self.norm(self.inner(x)))
        self.cache = y
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return y + random.random()


def test_everything_is_as_it_was(audited):
    model = nn.Sequential(Stateful(), nn.Linear(8, 3)).train()
    model[1].weight.grad = torch.ones_like(model[1].weight)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    inputs, target = batch()
    kept = inputs.clone()
    before = (torch.get_rng_state(), random.getstate(), nn.Module.__call__)

    audited(model, inputs, target, loss_fn=CE)

    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert nn.Module.__call__ is before[2]
    assert torch.get_default_dtype() is torch.float32
    assert {n: id(t) for n, t in model.state_dict(keep_vars=True).items()} == tensors
    assert all(torch.equal(state[n], t) for n, t in model.state_dict().items())
    assert model[1].weight.grad.eq(1).all() and model[0].inner.weight.grad is None
    assert (model[0].calls, model[0].cache, model.training) == (0, None, True)
    assert not model[0]._forward_hooks and torch.equal(inputs, kept)


def test_everything_is_as_it_was_after_an_error(audited):
    model = small()
    before = (nn.Module.__call__, torch.get_rng_state())

    with pytest.raises(InputError, match="Sequential raised RuntimeError"):
        audited(model, torch.randn(16, 5))

    assert nn.Module.__call__ is before[0]
    assert torch.get_default_dtype() is torch.float32


def test_without_a_loss_the_range_of_gradients_is_not_judged(audited):
    report = audited(small(), torch.randn(16, 8))

    assert {e.rule for e in report.not_evaluated} == {"PRC103", "PRC104"}
    assert report.modules[0].measurements["float16"].grad_weight_error > 0.0


class OnlyFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        return self.inner(x) @ torch.eye(3, dtype=torch.float32)


def test_a_model_that_cannot_run_in_float64_is_judged_against_float32(audited):
    report = audited(OnlyFloat32(), torch.randn(16, 8))

    assert "cannot run in float64" in report.notes[0]
    assert report.dtypes == ("float16", "bfloat16")


def test_a_module_that_cannot_run_in_half_is_said(audited):
    report = audited(OnlyFloat32(), torch.randn(16, 8), candidate_dtypes=(torch.float16,))

    reasons = [entry.reason for entry in report.not_evaluated if entry.rule == "PRC101"]
    assert len(reasons) == 1
    assert reasons[0].startswith("OnlyFloat32: in float16 it raises RuntimeError")


class Counting(nn.Module):
    """Gives something else in every call."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.calls * x


def test_a_module_that_is_not_repeatable_is_not_judged(audited):
    report = audited(nn.Sequential(nn.Linear(8, 8), Counting()), torch.randn(16, 8))

    assert [m.path for m in report.modules if m.why_not] == ["1"]
    assert not report.issues
    assert "does not return the same" in report.not_evaluated[0].reason


def test_exclusions_are_code_that_runs(audited, parts):
    model = nn.Sequential(nn.Linear(8, 8), parts["shift"](), nn.Linear(8, 3))
    report = audited(model, *batch(), loss_fn=CE)
    namespace = {}

    exec(report.exclusions("bfloat16"), namespace)
    namespace["keep_in_float32"](model, "cpu")
    dtypes = []
    model[1].register_forward_hook(lambda module, args, out: dtypes.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.randn(4, 8))

    assert namespace["KEEP_IN_FLOAT32"] == ("1",)
    assert dtypes == [torch.float32]
    assert out.dtype is torch.bfloat16


def test_exclusions_of_a_model_that_fits_are_empty(audited):
    namespace = {}

    exec(audited(small(), *batch(), loss_fn=CE).exclusions(), namespace)

    assert namespace["KEEP_IN_FLOAT32"] == ()


def test_precision_is_callable_and_knows_names(audited):
    report = nabla.precision(small(), batch(), CE, dtypes=("bf16", "float16"))

    assert report.dtypes == ("bfloat16", "float16")
    assert nabla.precision.audit is nabla_precision.audit


def test_the_result_is_text_and_json(audited, parts):
    report = audited(nn.Sequential(parts["shift"](), nn.Linear(8, 3)), *batch(), loss_fn=CE)

    stored = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert stored["modules"][0]["dtypes"]["float16"]["fits"] is False
    assert not stored["passed"]
    rows = [line for line in report.format().splitlines() if line.startswith("0 (Shift)")]
    assert len(rows) == 1 and "✗" in rows[0] and "█" in rows[0]
    assert max(map(len, report.ladder(100).splitlines())) <= 112
    with pytest.raises(AssertionError, match="PRC101"):
        report.raise_if_failed()


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("model", torch.ones(2)), {}, "needs a torch.nn.Module"),
        ((small(), torch.ones(2, 8)), {"candidate_dtypes": ()}, "at least one dtype"),
        ((small(), torch.ones(2, 8)), {"candidate_dtypes": (torch.int8,)}, "floating-point"),
        ((small(), torch.ones(2, 8)), {"candidate_dtypes": (torch.float64,)}, "choose from"),
        ((small(), torch.ones(2, 8)), {"loss_fn": CE}, "last element of inputs"),
        ((small(), torch.ones(2, 8)), {"loss_fn": lambda out: out}, "one number"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, says):
    with pytest.raises(UsageError, match=says):
        nabla_precision.audit(*arguments, **options)


TARGET = """
import torch
from torch import nn

class Shift(nn.Module):
    def forward(self, x):
        return (x + 300) - 300

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Shift(), nn.Linear(8, 3))
    return model, (torch.randn(16, 8), torch.randint(3, (16,))), nn.CrossEntropyLoss()

def broken():
    return 3
"""


def run(folder, *arguments):
    command = [sys.executable, "-m", "nabla", "precision", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_reports_a_target(tmp_path):
    (tmp_path / "nets.py").write_text(TARGET)

    done = run(tmp_path, "nets.py:build", "--format", "json=out.json", "--fail-on", "medium")

    assert done.returncode == 1, done.stderr
    assert "Precision ladder" in done.stdout and "1 (Shift)" in done.stdout
    stored = json.loads((tmp_path / "out.json").read_text())
    assert [issue["rule"] for issue in stored["issues"]] == ["PRC101"]

    listed = run(tmp_path, "nets:build", "--dtypes", "bfloat16", "--exclusions")
    assert listed.returncode == 0, listed.stderr
    assert "'1',  # Shift" in listed.stdout


def test_targets_are_read_as_people_write_them(tmp_path, monkeypatch):
    from nabla_precision.targets import built_by

    (tmp_path / "nets.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)

    model, inputs, loss = built_by("nets.py:build")
    assert isinstance(model, nn.Module) and len(inputs) == 2 and loss is not None
    with pytest.raises(InputError, match="return \\(model, inputs\\)"):
        built_by("nets.py:broken")
    with pytest.raises(InputError, match="has no function absent"):
        built_by("nets.py:absent")
    with pytest.raises(UsageError, match="file.py:function"):
        built_by("nets.py")


def test_gradients_that_are_zero_by_construction_ask_for_no_loss_scale():
    """After the mean over what was normalised per channel, nothing of the convolution is left."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.AdaptiveAvgPool2d(1)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3))
    x, y = torch.randn(6, 2, 6, 6), torch.randint(3, (6,))

    report = nabla.precision(model, (x, y), nn.CrossEntropyLoss(), dtypes=("float16",))

    assert report.issues == ()


def test_what_is_measured_does_not_pass_through_the_mode_that_rounds(monkeypatch):
    from nabla_precision.accumulating import Accumulating

    seen, dispatch = [], Accumulating.__torch_dispatch__

    def counted(self, func, types, args=(), kwargs=None):
        seen.append(func._schema.name)
        return dispatch(self, func, types, args, kwargs)

    monkeypatch.setattr(Accumulating, "__torch_dispatch__", counted)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    given = torch.randn(4, 8), torch.randint(3, (4,))
    nabla_precision.audit(
        model, given, loss_fn=CE, candidate_dtypes=(torch.float16, torch.bfloat16)
    )

    assert not {"aten::dot", "aten::_local_scalar_dense", "aten::sub_"} & set(seen)
    assert seen.count("aten::addmm") == 8  # two layers, alone and in the whole, in two dtypes
