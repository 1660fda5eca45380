"""The planted bugs are caught, and whatever goes wrong is told as what it is."""

import json
import os
import random
import re

import pytest
import torch

from nabla_bench import BUGS, Bug, BugBench, Outcome, Verdict, run_bugbench
from nabla_core.cli.shell import run_shell
from nabla_core.errors import UsageError
from nabla_core.host import PluginHost, use_host

QUICK = ["log-of-zero", "cleared-before-step", "one-bad-batch", "record-in-other-units"]


@pytest.fixture
def plant(monkeypatch):
    """Let the suite consist of one bug of the caller."""

    def put(**changes):
        known = {
            "rule": "AUD101",
            "program": "loops:cleared_before_step",
            "summary": "a bug",
            "needs": ("guard",),
        }
        monkeypatch.setattr("nabla_bench.bugbench.BUGS", (Bug(**{**known, **changes}),))

    return put


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught_and_its_twin_is_silent(name):
    (outcome,) = run_bugbench([name]).outcomes

    assert outcome.verdict is Verdict.CAUGHT
    assert outcome.alarms == ()
    assert outcome.bug.rule in outcome.found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_planted_bugs_are_caught_whatever_the_data(seed):
    bench = run_bugbench(seed=seed)

    assert [o.bug.name for o in bench.outcomes if o.verdict is not Verdict.CAUGHT] == []


def test_another_rule_is_no_catch(plant):
    plant(rule="AUD401")

    (outcome,) = run_bugbench().outcomes

    assert outcome.verdict is Verdict.WRONG_RULE
    assert outcome.found == ("AUD101",)


def test_a_program_that_crashes_is_told_and_does_not_hide_the_others(plant):
    plant(program="loops:nowhere")

    bench = run_bugbench()

    assert bench.outcomes[0].verdict is Verdict.CRASHED
    assert "nowhere" in bench.outcomes[0].reason
    assert bench.exit_code == 1


def test_what_is_not_installed_is_not_evaluated(plant):
    plant(needs=("guard", "check"), rule="CHK201")
    use_host(PluginHost(blocked=["check"]))
    try:
        bench = run_bugbench()
    finally:
        use_host(PluginHost())

    assert bench.outcomes[0].verdict is Verdict.NOT_EVALUATED
    assert "CHK201" in bench.outcomes[0].reason
    assert bench.exit_code == 4


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.CAUGHT, 0),
        (Verdict.MISSED, 1),
        (Verdict.FALSE_ALARM, 1),
        (Verdict.NOT_EVALUATED, 0),
    ],
)
def test_anything_that_was_run_and_not_caught_fails(verdict, code):
    caught = Outcome(bug=BUGS[0], verdict=Verdict.CAUGHT)
    bench = BugBench(seed=0, outcomes=(caught, Outcome(bug=BUGS[1], verdict=verdict)))

    assert bench.exit_code == code
    assert bench.passed is (code == 0)


def test_the_table_says_what_went_wrong():
    bug = BUGS[0]
    alarm = Outcome(bug=bug, verdict=Verdict.FALSE_ALARM, alarms=("AUD301",))
    wrong = Outcome(bug=bug, verdict=Verdict.WRONG_RULE, found=("NUM102",))

    text = BugBench(seed=3, outcomes=(alarm, wrong)).format()

    assert "its healthy twin raises AUD301" in text
    assert "found NUM102 instead" in text
    assert "0 of 2 planted bugs caught, 1 wrong rule, 1 false alarm (seed 3" in text


def test_rules_that_speak_rightly_too_are_not_told():
    bug = Bug(rule="NUM122", program="a:b", summary="", needs=(), also=("NUM121",))

    assert Outcome(bug=bug, verdict=Verdict.CAUGHT, found=("NUM121", "NUM122")).besides == ()


def test_nothing_of_the_person_decides_and_nothing_is_left_behind(tmp_path, monkeypatch):
    (tmp_path / "nabla.toml").write_text('select = ["CHK"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NABLA_IGNORE", "AUD101")
    state, threads = torch.get_rng_state(), torch.get_num_threads()

    bench = run_bugbench(["cleared-before-step"])

    assert bench.passed
    assert os.listdir(tmp_path) == ["nabla.toml"]
    assert os.environ["NABLA_IGNORE"] == "AUD101"
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_the_place_of_a_bug_is_its_own_program():
    from nabla_bench.loading import Shelf
    from nabla_bench.surroundings import own_surroundings
    from nabla_bench.toolbox import Toolbox

    bug = next(bug for bug in BUGS if bug.name == "cleared-before-step")
    with own_surroundings() as folder:
        issues = Shelf(folder).program(bug)(Toolbox(0), True)

    assert [issue.where.file for issue in issues] == ["loops.py"]


def test_every_bug_has_a_name_of_its_own_and_a_program():
    from importlib.resources import files

    assert len(BUGS) >= 24
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert len({bug.rule[:3] for bug in BUGS}) == 8
    for bug in BUGS:
        file, _, function = bug.program.partition(":")
        text = files("nabla_bench").joinpath("programs", f"{file}.py").read_text()
        assert re.search(rf"^def {function}\(", text, re.M), bug


def test_a_choice_is_a_name_a_rule_or_the_beginning_of_one():
    from nabla_bench.bugbench import chosen_bugs

    assert [bug.name for bug in chosen_bugs(["nan-in-the-data"])] == ["nan-in-the-data"]
    assert {bug.rule for bug in chosen_bugs(["chk2"])} == {"CHK201", "CHK212", "CHK231"}
    assert chosen_bugs([]) == BUGS
    with pytest.raises(UsageError, match="cleared-before-step"):
        chosen_bugs(["cleared-before-stp"])


def test_the_command_prints_a_table_and_writes_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["bench", "bugbench", "--only", "NUM101", "--format", "console"]

    assert run_shell([*words, "--format", "json=found.json"]) == 0

    assert "1 of 1 planted bugs caught, no alarm on a healthy twin" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["counts"]["caught"] == 1
    assert found["outcomes"][0]["bug"] == "log-of-zero"


@pytest.mark.parametrize(
    "words", [["--only", "nothing"], ["--format", "html"], ["--seed", "one"], ["more"]]
)
def test_a_wrong_request_ends_with_2(words, capsys):
    assert run_shell(["bench", "bugbench", *words]) == 2
    assert capsys.readouterr().out == ""


def test_the_list_names_all_and_runs_none(capsys):
    assert run_shell(["bench", "bugbench", "--list"]) == 0

    assert len(capsys.readouterr().out.splitlines()) == len(BUGS)


def test_random_numbers_of_python_are_left_alone():
    random.seed(5)
    expected = random.Random(5).random()

    run_bugbench(["one-bad-batch"])

    assert random.random() == expected
