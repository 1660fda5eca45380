"""``nabla replay`` and ``nabla bisect`` on a stored run, as a person calls them."""

import json

import pytest

from nabla_core.cli.shell import run_shell
from nabla_replay.store.entries import StepEntry


@pytest.fixture
def nabla(capsys):
    def run(*words):
        code = run_shell(["--no-plugins", "--no-config", *map(str, words)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def spiky(store):
    """Return a run whose loss is bad in the steps 4, 5 and 8."""
    with store.create() as writer:
        for step in range(10):
            loss = {4: 20.0, 5: float("nan"), 8: 11.0}.get(step, 1.0)
            writer.append(StepEntry(step=step, loss=loss))
    return writer.folder


def test_all_bad_episodes_of_a_metric_are_told(spiky, nabla):
    code, out, err = nabla("bisect", spiky, "--metric", "loss", "--greater-than", 10)

    assert code == 0 and err == ""
    assert "REP301" in out and "REP302" in out
    assert "bad from step 4 to 5" in out and "bad from step 8 to 8" in out


def test_a_bad_step_can_fail_a_pipeline(spiky, nabla):
    words = ["bisect", spiky, "--metric", "loss", "--nonfinite"]

    assert nabla(*words, "--fail-on", "medium")[0] == 1
    assert nabla(*words)[0] == 0


def test_a_run_without_a_bad_step_is_told_as_one(store, nabla):
    words = ["bisect", store.run(), "--metric", "loss", "--greater-than", 10]

    code, out, _ = nabla(*words, "--fail-on", "medium")

    assert code == 0 and "no bad step was found" in out and "REP301" not in out


def test_the_report_can_be_json(spiky, nabla):
    code, out, _ = nabla(
        "bisect", spiky, "--metric", "loss", "--greater-than", 10, "--format", "json"
    )

    rules = [issue["rule"] for issue in json.loads(out)["issues"]]
    assert code == 0 and "REP301" in rules


@pytest.mark.parametrize("words", [[], ["--metric", "loss", "--predicate", "a.py:f"]])
def test_what_is_bad_is_said_exactly_once(spiky, nabla, words):
    code, out, err = nabla("bisect", spiky, *words)

    assert (code, out) == (2, "") and "say what is bad" in err


@pytest.mark.parametrize("command", [["replay", "--verify-only"], ["bisect", "--metric", "loss"]])
def test_a_folder_that_is_no_run_is_a_usage_error(tmp_path, nabla, command):
    code, out, err = nabla(command[0], tmp_path, *command[1:])

    assert (code, out) == (2, "") and "no captured run" in err


def test_a_predicate_from_inside_the_run_is_refused(spiky, nabla):
    (spiky / "evil.py").write_text("raise SystemExit('executed')\n")

    code, _, err = nabla("bisect", spiky, "--predicate", f"{spiky}/evil.py:bad")

    assert code == 2 and "inside the run" in err


def test_captured_runs_are_listed(store, nabla, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.root = tmp_path / ".nabla" / "runs"
    code, out, _ = nabla("runs")
    assert code == 0 and "none under .nabla/runs" in out

    store.run("good")
    (store.root / "odd\x1b[2J").mkdir()
    damaged = store.run("hurt")
    store.flip(store.log(damaged))
    store.resume(damaged).close()
    code, out, _ = nabla("runs")

    assert code == 0 and "\x1b" not in out
    rows = {line.split()[0]: " ".join(line.split()) for line in out.splitlines() if line.split()}
    assert rows["good"] == "good 0 to 5 0.166667 2 closed"
    assert rows["hurt"].endswith("closed, 2 segments, 1 damaged lines")
    assert json.loads(nabla("runs", "--json")[1])["captured"][-1]["run_id"] in ("good", "hurt")


def test_all_commands_are_listed(nabla):
    code, out, _ = nabla("--help")

    assert code == 0
    for name in ("replay", "bisect", "inspect", "artifact", "import-checkpoint"):
        assert name in out
