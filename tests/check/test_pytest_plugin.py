"""The pytest plugin: verdicts as failures, allowances, report, and its price."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

OPERATORS = """
import pytest
import torch
import nabla

class WrongSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

X = [nabla.tensor((4,))]
"""


@pytest.fixture
def run(pytester):
    names = {point.name for point in importlib.metadata.entry_points(group="pytest11")}
    load = [] if "nabla" in names else ["-p", "nabla_check.pytest_plugin"]

    def start(body, *arguments, ini=""):
        pytester.makepyfile(OPERATORS + body)
        pytester.makeini(f"[pytest]\n{ini}")
        return pytester.runpytest_inprocess("--strict-markers", *load, *arguments)

    return start


def test_a_wrong_operator_is_a_red_test_with_a_short_reason(run):
    result = run(
        """
def test_wrong(nabla_check):
    nabla_check(WrongSquare.apply, X, seed=1)

def test_right(nabla_check):
    assert nabla_check(torch.square, X, seed=1).passed
"""
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*CHK201 backward-mismatch*", "*factor 0.5*"])
    assert len(result.outlines) < 45
    assert not any("Traceback" in line for line in result.outlines)


def test_fuzzing_is_a_method_of_the_fixture(run):
    result = run(
        """
def test_wrong(nabla_check):
    nabla_check.fuzz(WrongSquare.apply, [nabla.tensor(nabla.shapes("n"))], reference=torch.square)
"""
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*smallest failing case: x (1,) float64*"])


def test_the_marker_allows_a_rule_and_wants_a_reason(run):
    result = run(
        """
@pytest.mark.nabla_allow("CHK201", reason="half a gradient is wanted")
def test_allowed(nabla_check):
    assert nabla_check(WrongSquare.apply, X, seed=1).allowed

@pytest.mark.nabla_allow("CHK201")
def test_without_a_reason(nabla_check):
    nabla_check(torch.square, X)

@pytest.mark.nabla_allow("CHK2O1", reason="misspelt")
def test_unknown(nabla_check):
    nabla_check(torch.square, X)
"""
    )

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*needs a reason*", "*CHK2O1*"])


@pytest.mark.parametrize(("level", "failed"), [("high", 1), ("critical", 0)])
def test_the_ini_option_sets_the_severity(run, level, failed):
    body = """
def test_wrong(nabla_check):
    nabla_check(WrongSquare.apply, X, seed=1)
"""
    run(body, ini=f"nabla_fail_on = {level}").assert_outcomes(failed=failed, passed=1 - failed)


def test_an_unknown_severity_is_explained(run):
    result = run(
        "\ndef test_any(nabla_check):\n    nabla_check(torch.square, X)\n",
        ini="nabla_fail_on = grave",
    )

    result.stdout.fnmatch_lines(["*unknown severity 'grave'*"])


def test_the_report_holds_the_issues_of_all_tests(run, pytester):
    result = run(
        """
def test_wrong(nabla_check):
    nabla_check(WrongSquare.apply, X, seed=1)

def test_right(nabla_check):
    nabla_check(torch.square, X, seed=1)
""",
        "--nabla-report=report.json",
    )
    report = json.loads((pytester.path / "report.json").read_text())

    result.assert_outcomes(passed=1, failed=1)
    assert [issue["rule"] for issue in report["issues"]] == ["CHK201"]
    assert "CHK201" in report["rules_used"]


def test_a_report_that_cannot_be_written_stops_the_run_at_once(run):
    result = run("\ndef test_any():\n    pass\n", "--nabla-report=missing/report.json")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*does not exist*"])


def test_loading_the_plugin_costs_under_a_millisecond_and_imports_nothing_heavy():
    program = """
import importlib.util, sys, time, pytest

spec = importlib.util.find_spec("nabla_check.pytest_plugin")
body = spec.loader.get_code(spec.name)  # how fast a disk gives a file is not the plugin's doing
best = 1.0
for _ in range(9):
    start = time.process_time()
    exec(body, {"__name__": spec.name})
    best = min(best, time.process_time() - start)
print(sorted({"torch", "numpy", "nabla_core"} & set(sys.modules)), best)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    heavy, seconds = answer.stdout.rsplit(maxsplit=1)

    assert heavy == "[]"
    assert float(seconds) < 1e-3
