"""What a tired person types: each mistake is told in one line, with the next step."""

import io
import os
import subprocess
import sys

import pytest

from nabla_core.cli.shell import run_shell
from nabla_core.cli.state import ShellState
from nabla_core.report import Report, RunInfo
from nabla_core.reporters.json import render as render_json
from nabla_core.reporters.style import Style


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["rules", "--prefix", "AUX"], "--prefix AUX: no rule has it (did you mean 'AU"),
        (["rules", "--tag", "confi"], "--tag confi: no rule has it (did you mean 'config'?)"),
        (["rules", "--plugin", "cor"], "--plugin cor: no rule has it (did you mean 'core'?)"),
        (["rules", "--write-docs", "taken"], "taken: is a file; give the name of a folder"),
        (["plugins", "--hook", "nosuch"], "--hook nosuch: there is no such hook; choose from"),
        (["plugins", "--hook", "reporter"], "(did you mean 'reporters'?)"),
        (["config", "-o", "x=1"], "-o x: unknown key; known are select, extend-select"),
        (["config", "-o", "max-issues=0"], "-o max-issues = '0': needs at least 1"),
        (["config", "-o", "baseline=none.toml"], "error: baseline none.toml: no such file"),
    ],
)
def test_each_is_told_in_one_line(words, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()

    assert run_shell(["--no-config", *words]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert len(err.splitlines()) == 1


def test_a_hook_is_found_by_the_name_that_is_listed(capsys):
    assert run_shell(["plugins", "--hook", "reporters"]) == 0
    assert capsys.readouterr().out.startswith("core ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("columns", "width"), [("200", 100), ("60", 60), ("20", 40)])
def test_text_is_as_narrow_as_its_terminal(columns, width, monkeypatch):
    monkeypatch.setitem(os.environ, "COLUMNS", columns)

    assert ShellState(color="never").style(Terminal()).width == width
    assert ShellState(color="never").style(io.StringIO()).width == 100


def test_a_stream_that_cannot_hold_a_character_gets_its_code(tmp_path):
    stored = tmp_path / "report.json"
    stored.write_text(render_json(Report(run=RunInfo(command="nabla run \u2207.py")), Style()))
    command = [sys.executable, "-m", "nabla", "--no-config", "report", str(stored)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert "nabla run \\u2207.py" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
