import errno
import json
import sys

import pytest

import nabla_core
from nabla_core.cli.main import main
from nabla_core.cli.shell import run_shell
from nabla_core.cli.state import ShellState
from nabla_core.discovery import FoundPlugin
from nabla_core.report import Report, RunInfo
from nabla_core.reporters.json import render
from nabla_core.reporters.style import Style


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def stored(tmp_path, make_rule):
    def store(**changes):
        issue = make_rule().issue("m", step=2)
        report = Report(run=RunInfo(command="t.py"), issues=(issue,), rules_used=("ACM101",))
        from dataclasses import replace

        path = tmp_path / "stored.json"
        path.write_text(render(replace(report, **changes), Style()))
        return str(path)

    return store


@pytest.fixture
def broken_plugin(monkeypatch, tmp_path):
    from nabla_core import host

    found = FoundPlugin(name="broken", module="no_such_module", distribution="broken-dist")
    monkeypatch.setattr(host, "find_plugins", lambda: (found,))


def test_version_needs_no_click(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"nabla {nabla_core.__version__}\n"


def test_help_lists_commands_without_importing_them(capsys):
    assert run_shell(["--help"]) == 0
    text = capsys.readouterr().out
    assert "Explain a rule" in text


def test_a_misspelt_command_names_the_nearest(capsys):
    assert run_shell(["rulez"]) == 2
    assert "did you mean 'rule" in capsys.readouterr().err


def test_rules_are_listed_and_filtered(capsys):
    assert run_shell(["rules", "--prefix", "nab", "--tag", "config"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAB006"]

    assert run_shell(["rules", "--plugin", "core", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["plugin"] for row in rows} == {"core"}
    assert len(rows) == 9


@pytest.mark.parametrize("key", ["NAB001", "nab001", "plugin-import-failed"])
def test_a_rule_is_explained_by_id_or_name(capsys, key):
    assert run_shell(["rule", key]) == 0
    text = capsys.readouterr().out
    assert text.startswith("NAB001 plugin-import-failed")
    assert "When it is silent or wrong" in text


def test_an_unknown_rule_names_the_nearest(capsys):
    assert run_shell(["rule", "NAB01"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no rule matches 'NAB01'; did you mean NAB001" in err
    assert run_shell(["rule", "NAB"]) == 2
    assert "prefix of several rules" in capsys.readouterr().err


def test_config_shows_values_with_their_source(capsys, tmp_path, monkeypatch):
    (tmp_path / "nabla.toml").write_text('ignore = ["NAB001"]\n')
    monkeypatch.setenv("NABLA_MAX_ISSUES", "7")
    assert run_shell(["config", "--format", "json", "-o", "fail-on=low"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out) if not row["table"]}
    assert (rows["ignore"]["value"], rows["ignore"]["source"]) == (["NAB001"], "nabla.toml")
    assert (rows["max-issues"]["value"], rows["max-issues"]["source"]) == (7, "environment")
    assert (rows["fail-on"]["value"], rows["fail-on"]["source"]) == ("low", "command line")
    assert rows["preview"]["source"] == "default"

    assert run_shell(["--no-config", "config"]) == 0
    assert "ignore = []" in capsys.readouterr().out


def test_all_config_mistakes_are_told_at_once(capsys, tmp_path):
    (tmp_path / "nabla.toml").write_text('igmore = ["x"]\nmax-issues = 0\n')
    assert run_shell(["config"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nabla.toml: igmore: unknown key (did you mean 'ignore'?)" in err
    assert "nabla.toml: max-issues = 0: needs at least 1" in err
    assert "Traceback" not in err


def test_a_missing_config_file_is_told(capsys):
    assert run_shell(["--config", "none.toml", "config"]) == 2
    assert "none.toml: no such file" in capsys.readouterr().err


def test_a_stored_report_is_shown_again_with_its_exit_code(capsys, stored):
    assert run_shell(["report", stored(exit_code=1)]) == 1
    assert "ACM101 rule-acm101" in capsys.readouterr().out
    assert run_shell(["report", "--format", "json", stored()]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == "1.1"


def test_formats_go_to_files_and_the_text_to_stdout(capsys, stored, tmp_path):
    path = stored()
    words = ["report", "--format", "json=a.json", "--format", "github=b.txt", path]
    assert run_shell(words) == 0
    assert "ACM101" in capsys.readouterr().out
    assert json.loads((tmp_path / "a.json").read_text())["issues"]
    assert (tmp_path / "b.txt").read_text().startswith("::warning")

    assert run_shell(["-q", "report", "--output", "c.json", path]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "c.json").read_text())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--format", "jsno"], "choose one of console, github"),
        (["--format", "json=none/x.json"], "folder none does not exist"),
        (["--output", "."], "is a folder"),
        (["--format", "json", "--format", "github", "--output", "x"], "--output takes one format"),
        (["--select", "NAB999"], "command line: select: no rule matches 'NAB999'"),
        (["--fail-on", "fatal"], "fatal"),
        (["-o", "nonsense"], "table.key=value"),
    ],
)
def test_mistakes_in_options_exit_with_2_before_any_work(capsys, stored, words, reason):
    assert run_shell(["report", *words, stored()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert "Traceback" not in err


def test_a_damaged_report_is_a_users_mistake(capsys, tmp_path):
    (tmp_path / "x.json").write_text("{")
    assert run_shell(["report", "x.json"]) == 2
    assert "is not valid JSON" in capsys.readouterr().err


def test_a_baseline_is_written_from_a_report(stored, tmp_path, capsys):
    assert run_shell(["report", "--write-baseline", "known.toml", stored()]) == 0
    assert 'rule = "ACM101"' in (tmp_path / "known.toml").read_text()


def test_a_broken_plugin_is_named_on_stderr_only(capsys, broken_plugin):
    assert run_shell(["rules", "--prefix", "NAB"]) == 0
    out, err = capsys.readouterr()
    assert "NAB001  medium" in out
    assert "NAB001 plugin-import-failed: broken (broken-dist" in err
    assert "ModuleNotFoundError" in err


def test_strict_plugins_exit_with_5(capsys, broken_plugin):
    assert run_shell(["--strict-plugins", "plugins", "--problems"]) == 5
    assert run_shell(["--strict-plugins", "-p", "no:broken", "plugins"]) == 0
    assert "blocked by -p no:broken" in capsys.readouterr().out
    assert run_shell(["--strict-plugins", "--no-plugins", "plugins"]) == 0


def test_blocking_holds_for_commands_of_plugins_too(capsys, monkeypatch, write_plugin):
    from nabla_core import host

    source = """
    from nabla_core import Command

    @hookimpl
    def nabla_commands():
        return [Command(name="extra", target="nabla_core.cli.config:config_command")]
    """
    broken = FoundPlugin(name="broken", module="no_such_module", distribution="broken-dist")
    found = (write_plugin("giving", source), broken)
    monkeypatch.setattr(host, "find_plugins", lambda: found)

    assert run_shell(["extra"]) == 0
    assert capsys.readouterr().err.count("broken (broken-dist") == 1
    assert run_shell(["-p", "no:giving", "extra"]) == 2


def test_a_name_that_no_file_can_have_is_a_mistake_of_the_person(capsys):
    assert run_shell(["plugin", "new", "a" * 300]) == 2
    err = capsys.readouterr().err
    assert err.startswith("nabla: error: aaa") and err.count("\n") == 1


def test_a_full_disk_is_told_without_a_traceback(capsys, monkeypatch):
    from nabla_core.cli import rules

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rules, "_explain", full)
    assert run_shell(["rule", "NAB001"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "nabla: error: the output cannot be written: No space left on device"
    ]


def test_closed_streams_do_not_matter(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)

    with pytest.raises(SystemExit) as ended:
        main(["rule", "NAB001"])

    assert ended.value.code == 0


def test_a_fault_of_nabla_itself_exits_with_3_and_says_so(capsys, monkeypatch):
    from nabla_core.cli import rules

    def broken(*arguments):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(rules, "_explain", broken)
    assert run_shell(["rule", "NAB001"]) == 3
    err = capsys.readouterr().err
    assert "ZeroDivisionError: inside" in err
    assert "internal error" in err


def test_plugins_are_listed_by_hook(capsys):
    assert run_shell(["plugins", "--hook", "nabla_reporters", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"core"} <= {plugin["name"] for plugin in found["plugins"]} <= {"core", "report"}


def test_blocking_needs_the_right_spelling(capsys):
    assert run_shell(["-p", "broken", "plugins"]) == 2
    assert "write it as -p no:NAME" in capsys.readouterr().err
    assert run_shell(["-q", "-v", "plugins"]) == 2


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_follows_option_then_environment(monkeypatch, choice, environment, expected):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ShellState(color=choice).use_color(sys.stdout) is expected


def test_rule_pages_are_written(capsys, tmp_path):
    assert run_shell(["rules", "--prefix", "NAB", "--write-docs", "pages"]) == 0
    assert "| [NAB001](NAB001.md) |" in (tmp_path / "pages" / "README.md").read_text()
    assert "## When it is silent or wrong" in (tmp_path / "pages" / "NAB001.md").read_text()


_RUN_STORE = """
from nabla_core.declarations import RunList
from nabla_core.runs import RunTable


@hookimpl
def nabla_run_lists():
    return [RunList(name="measured", target=__name__ + ":listed", summary="Measured runs.")]


def listed(request):
    rows = ["first run", "second run"][-request.last :]
    return RunTable(lines=tuple(rows), records=tuple({"run": row} for row in rows))
"""


def test_runs_asks_every_store_of_runs(capsys, monkeypatch, write_plugin):
    from nabla_core import host

    monkeypatch.setattr(host, "find_plugins", lambda: (write_plugin("measured", _RUN_STORE),))

    assert run_shell(["runs"]) == 0
    assert capsys.readouterr().out == "measured\n  first run\n  second run\n"
    assert run_shell(["runs", "--last", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"measured": [{"run": "second run"}]}


def test_runs_without_a_store_says_who_keeps_runs(capsys, monkeypatch):
    from nabla_core import host

    monkeypatch.setattr(host, "find_plugins", tuple)

    assert run_shell(["runs"]) == 2
    assert "nabla[diagnose]" in capsys.readouterr().err
