"""``[tool.nabla.check]`` and ``nabla fuzz``: operators named by text."""

import json
from concurrent.futures import ProcessPoolExecutor

import pytest
from click.testing import CliRunner

from nabla_check.fuzz_cli import fuzz as fuzz_command
from nabla_check.project.fuzz_targets import FuzzRequest, fuzz_target
from nabla_check.project.manifest import CheckSettings, check_manifest, read_operators
from nabla_core.binder import bind_field, field_of
from nabla_core.cli.state import ShellState
from nabla_core.errors import ConfigError, UsageError

KERNELS = """
import torch

class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

half = Half.apply
square = torch.square
matmul = torch.matmul

def strict(x):
    if not x.is_contiguous():
        raise ValueError("give contiguous memory")
    return x * x

def step(x):
    return x + (x.sign() - x).detach()

inputs = [torch.linspace(0.5, 2, 4, dtype=torch.float64, requires_grad=True)]
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS)
    return "kernels.py"


def settings(operators, **others):
    value, mistake = bind_field(
        CheckSettings, field_of(CheckSettings, "operators"), operators, "[tool.nabla.check]"
    )
    assert mistake is None
    return CheckSettings(operators=value, **others)


def test_a_project_list_is_checked_and_fuzzed(kernels):
    operators = read_operators(
        settings(
            {
                f"{kernels}:square": {"recipes": ["n"], "dtypes": ["float64", "float32"]},
                f"{kernels}:half": {"recipes": ["n"], "reference": f"{kernels}:square"},
                f"{kernels}:strict": {},
            },
            trials=20,
        )
    )
    square, half, strict = check_manifest(operators)

    assert square.passed and square.fuzz.trials > 0
    assert not half.passed and half.fuzz.failures[0].rule == "CHK201"
    assert strict.passed and strict.fuzz is None


def test_exemptions_are_kept_and_shown_with_their_reason(kernels):
    entry = {"recipes": ["n"], "exempt": {"layout": "refuses strides", "oracle": "a surrogate"}}
    (outcome,) = check_manifest(read_operators(settings({f"{kernels}:step": entry})))

    assert outcome.passed
    assert outcome.fuzz is None  # nothing is left to compare with
    reasons = {told.rule: told.reason for told in outcome.check.not_evaluated}
    assert reasons["CHK213"] == "exempt from layout: refuses strides"
    assert reasons["CHK201"] == "exempt from oracle: a surrogate"


def test_all_mistakes_of_the_manifest_are_told_at_once():
    wrong = settings(
        {
            "a:f": {"recipe": ["m"], "trials": -1},
            "a:g": {"exempt": {"layout": " ", "orcale": "x"}},
        }
    )
    with pytest.raises(ConfigError) as caught:
        read_operators(wrong)

    text = str(caught.value)
    assert len(caught.value.mistakes) == 4
    assert "recipe: unknown key (did you mean 'recipes'?)" in text
    assert "trials = -1" in text
    assert "exempt.layout: needs a reason" in text
    assert "did you mean 'oracle'?" in text


@pytest.mark.slow
def test_processes_give_the_same_minimum(kernels):
    request = FuzzRequest(
        reference=f"{kernels}:square", recipes=("n",), dtypes=("float64",), layouts=("contiguous",)
    )
    alone = fuzz_target(f"{kernels}:half", request)
    together = fuzz_target(
        f"{kernels}:half",
        FuzzRequest(
            reference=request.reference,
            recipes=request.recipes,
            dtypes=request.dtypes,
            layouts=request.layouts,
            jobs=2,
        ),
    )

    assert together.minimum == alone.minimum


def test_an_operator_that_cannot_travel_is_explained():
    from nabla_check.fuzzing.fuzz_operator import fuzz
    from nabla_check.inputs.specs import tensor

    with ProcessPoolExecutor(1) as pool, pytest.raises(UsageError, match="top of a module"):
        fuzz(candidate=lambda x: x, inputs=[tensor((3,))], executor=pool)


@pytest.mark.parametrize(("name", "code"), [("half", 1), ("square", 0)])
def test_the_command_line_says_what_is_wrong(kernels, name, code):
    runner = CliRunner()
    arguments = [f"{kernels}:{name}", "--reference", f"{kernels}:square", "--recipe", "m n"]
    answer = runner.invoke(
        fuzz_command,
        [*arguments, "--trials", "20", "--format", "json"],
        obj=ShellState(use_config=False),
        standalone_mode=False,
    )

    assert answer.exception is None
    assert answer.return_value == code
    rules = [issue["rule"] for issue in json.loads(answer.stdout)["issues"]]
    assert rules == (["CHK201"] if code else [])


def test_an_empty_recipe_is_an_error(kernels):
    request = FuzzRequest(
        reference=None, recipes=(" ",), dtypes=("float64",), layouts=("contiguous",)
    )
    with pytest.raises(UsageError, match="name the axes"):
        fuzz_target(f"{kernels}:square", request)


def test_a_campaign_that_compares_nothing_exits_with_4(kernels):
    arguments = [f"{kernels}:matmul", "--recipe", "m n", "--trials", "3"]
    answer = CliRunner().invoke(
        fuzz_command, arguments, obj=ShellState(use_config=False), standalone_mode=False
    )

    assert answer.exception is None
    assert answer.return_value == 4
    assert "Only 0 of 3 trials could be compared" in answer.stdout
    assert "nothing was checked" in answer.stdout
