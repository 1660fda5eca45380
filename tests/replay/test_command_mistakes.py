"""What a person gets wrong on the command line is told in one line, or with their own traceback."""

import shutil

import pytest
import torch
from torch import nn

import nabla_replay
from nabla_core.cli.shell import run_shell

PROGRAM = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number):
        loss = model(torch.randn(4, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return {"model": model, "optimizer": optimizer, "step": step}


def other():
    return {**build(), "model": nn.Linear(7, 2)}


def nothing():
    pass


def without_step():
    return {"model": nn.Linear(3, 1)}


def raises():
    raise RuntimeError("the data folder is missing")


def step_raises():
    return {**build(), "step": lambda number: 1 / 0}


def needs(config):
    return build()


not_a_function = 3


def large(view):
    return bool(view.state["model"]["weight"].abs().max() > 1e6)


def broken_predicate(view):
    return view.state["nowhere"]


def talkative(view):
    return "yes"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a program and a run of six steps."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "syntax.py").write_text("def broken(:\n")
    (folder / "imports.py").write_text("import no_such_module_anywhere\n")
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nabla_replay.capture(
        model, optimizer, root=folder / "runs", checkpoint_every=3, budget=None
    ) as rec:
        for _ in range(6):
            loss = model(torch.randn(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    shutil.move(rec.run_path, folder / "run")
    return folder


@pytest.fixture
def nabla(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    def run(*words):
        code = run_shell(["--no-plugins", "--no-config", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def damaged(folder, name, change):
    target = folder / name
    if not target.exists():
        shutil.copytree(folder / "run", target)
        change(target)
    return name


def test_the_run_of_these_tests_is_a_good_one(nabla):
    code, out, _ = nabla("replay", "run", "--build", "program.py:build")
    assert code == 0
    assert "6 of 6 steps match" in out


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("program.py", "write it as file.py:function"),
        ("nowhere.py:build", "no such file"),
        ("program.py:bild", "has no bild; it has build, other"),
        ("program.py:not_a_function", "cannot be called"),
        ("program.py:nothing", "nothing() gave none"),
        ("program.py:without_step", "needs to know how to take a step"),
        ("program.py:needs", "needs() needs 1 arguments"),
        ("program.py:other", "the program has other parameters than the recorded one"),
        ("syntax.py:build", "line 1"),
    ],
)
def test_a_wrong_program_is_named_in_one_line(nabla, target, words):
    code, out, err = nabla("replay", "run", "--build", target)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("program.py:raises", "RuntimeError: the data folder is missing"),
        ("program.py:step_raises", "ZeroDivisionError: division by zero"),
        ("imports.py:build", "No module named 'no_such_module_anywhere'"),
    ],
)
def test_an_exception_of_the_program_shows_its_own_lines_only(nabla, target, words):
    code, _, err = nabla("replay", "run", "--build", target)
    assert code == 3
    assert words in err.splitlines()[-1]
    assert target.partition(":")[0] in err
    assert "nabla_core" not in err and "click" not in err
    assert "internal error" not in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["missing", "--build", "nowhere.py:build"], "missing: no such folder"),
        (["program.py", "--build", "program.py:build"], "not a folder"),
        (["run"], "say how to make the program"),
        (["run", "--build", "program.py:build", "--from", "90"], "steps 0 to 5 were recorded"),
        (["run", "--build", "program.py:build", "--from", "4", "--to", "2"], "ends before"),
        (["run", "--build", "program.py:build", "--rank", "3"], "no log of rank 3"),
        (["run", "--build", "program.py:build", "--explain-step", "90"], "steps 0 to 5"),
    ],
)
def test_a_wrong_run_or_step_is_named(nabla, words, told):
    code, _, err = nabla("replay", *words)
    assert code == 2
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_predicate_that_takes_no_state_is_named(nabla):
    code, _, err = nabla("bisect", "run", "--predicate", "program.py:build")
    assert code == 2
    assert "must take the state, as in build(state)" in err
    assert len(err.splitlines()) == 1


def test_a_run_of_another_schema_is_not_guessed_at(folder, nabla):
    def later(target):
        header = target / "run.json"
        header.write_text(header.read_text().replace("nabla.run/1", "nabla.run/2"))

    name = damaged(folder, "later", later)
    code, _, err = nabla("replay", name, "--build", "program.py:build")
    assert code == 2
    assert "use the nabla that wrote it" in err


def test_a_run_that_was_cut_off_is_replayed_as_far_as_it_goes(folder, nabla):
    def cut(target):
        log = target / "steps.r0.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:-3]) + lines[-3][:20])

    name = damaged(folder, "half", cut)
    code, out, _ = nabla("replay", name, "--build", "program.py:build")
    assert code == 0
    assert "match bit by bit" in out
    code, out, _ = nabla("inspect", name)
    assert code == 0
    assert "REP202" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--metric", "accuracy", "--greater-than", "3"], 4, "(what was: loss, lr)"),
        (["--metric", "loss", "--greater-than", "1e9"], 0, "no bad step was found"),
        (["--nonfinite"], 0, "nabla bisect run --metric loss --nonfinite"),
        (["--predicate", "program.py:large", "--build", "program.py:build"], 0, "no bad step"),
        (["--predicate", "program.py:talkative"], 2, "the predicate returned str"),
        (["--predicate", "program.py:broken_predicate"], 3, "KeyError: 'nowhere'"),
        ([], 2, "say what is bad"),
    ],
)
def test_a_bisection_says_what_it_could_not_do(nabla, words, code, told):
    found, out, err = nabla("bisect", "run", *words)
    assert found == code
    assert told in out + err


def test_other_things_are_told_apart(nabla):
    code, out, _ = nabla("inspect", "program.py")
    assert code == 0
    assert "foreign file" in out and "text" in out
    code, _, err = nabla("artifact", "inspect", "run")
    assert code == 2
    assert "is a captured run" in err
