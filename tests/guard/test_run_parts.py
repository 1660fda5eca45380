"""The pieces of ``nabla run``: late attachment, own frames, live lines, hidden modules."""

import importlib
import io
import sys

import pytest

from nabla_core.errors import InputError
from nabla_core.report import Report
from nabla_core.rule import Rule
from nabla_core.severity import Severity
from nabla_guard.program.namesakes import hide_shadowed, restore_modules
from nabla_guard.program.on_import import when_imported
from nabla_guard.program.run import LiveLines, Outcome, close_report
from nabla_guard.program.script import find_module, find_script
from nabla_guard.program.uncaught import exit_status, forget_own_frames


def rule(severity=Severity.HIGH):
    return Rule(
        id="TST101",
        name="test-rule",
        summary="A fault.",
        rationale="It matters.",
        fix="Mend it.",
        limits="None.",
        severity=severity,
        since="0.1",
    )


@pytest.fixture
def late_module(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("loader = __loader__\nvalue = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "late_module"
    sys.modules.pop("late_module", None)


def test_callback_comes_once_after_the_whole_import(late_module):
    seen = []

    watch = when_imported(late_module, lambda: seen.append(sys.modules[late_module].value))
    assert seen == []
    module = importlib.import_module(late_module)
    sys.modules.pop(late_module)
    importlib.import_module(late_module)

    assert seen == [1]
    assert watch not in sys.meta_path
    assert module.loader is module.__loader__ is module.__spec__.loader
    assert type(module.loader).__module__ != "nabla_guard.program.on_import"


def test_looking_for_a_module_does_not_fire(late_module):
    seen = []
    watch = when_imported(late_module, lambda: seen.append(1))

    found = importlib.util.find_spec(late_module)

    assert found is not None and found.loader.is_package(late_module) is False
    assert seen == []
    watch.stop()
    importlib.import_module(late_module)
    assert seen == []


def test_a_loaded_module_fires_at_once():
    seen = []

    when_imported("sys", lambda: seen.append(1))

    assert seen == [1]


def test_a_module_that_does_not_exist_fails_as_always():
    watch = when_imported("no_such_module_at_all", lambda: None)
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
            importlib.import_module("no_such_module_at_all")
    finally:
        watch.stop()


@pytest.mark.parametrize(
    ("code", "status"), [(None, 0), (0, 0), (3, 3), (True, 1), ("text", 1), ((), 1)]
)
def test_exit_status_is_that_of_python(code, status, capsys):
    assert exit_status(SystemExit(code)) == status
    assert capsys.readouterr().err == (f"{code}\n" if code in ("text", ()) else "")


def frame_names(error):
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return names


def function_in(module, source, **known):
    namespace = {"__name__": module, **known}
    exec(source, namespace)
    return namespace["call"]


def test_own_frames_vanish_around_and_between_the_programs():
    def user():
        raise ValueError("x")

    hook = function_in("nabla_guard.hooks", "def call(): return user()", user=user)

    def caller():
        try:
            hook()
        except ValueError as error:
            raise TypeError("y") from error

    outer = function_in("nabla_guard.program.run", "def call(): return caller()", caller=caller)
    with pytest.raises(TypeError) as caught:
        outer()

    forget_own_frames(caught.value)

    here = "test_own_frames_vanish_around_and_between_the_programs"
    assert frame_names(caught.value) == [here, "caller"]
    assert frame_names(caught.value.__cause__) == ["caller", "user"]


def test_the_frame_in_which_nabla_raised_stays():
    call = function_in("nabla_guard.api", "def call(): raise ValueError('x')")
    with pytest.raises(ValueError, match="x") as caught:
        call()

    forget_own_frames(caught.value)

    assert frame_names(caught.value)[-1] == "call"


def test_live_lines_name_rule_step_and_message():
    stream = io.StringIO()
    show = LiveLines(stream)

    show(rule().issue("Loss is 3, limit 2.", step=3))
    show(rule().issue("No step here."))
    show(rule(Severity.INFO).issue("Good to know."))

    assert stream.getvalue() == (
        "nabla: TST101 test-rule at step 3: Loss is 3, limit 2.\n"
        "nabla: TST101 test-rule: No step here.\n"
    )


def test_live_lines_survive_a_closed_stream():
    stream = io.StringIO()
    show = LiveLines(stream)
    stream.close()

    show(rule().issue("x"))
    show(rule().issue("y"))


def test_hidden_modules_come_back(tmp_path, late_module):
    module = importlib.import_module(late_module)
    own = tmp_path / "scripts"
    own.mkdir()
    (own / "late_module.py").write_text("value = 2\n")
    (own / "os.py").write_text("")  # loaded by the interpreter before any script: never hidden

    hidden = hide_shadowed(str(own))

    assert list(hidden) == [late_module]
    assert late_module not in sys.modules and "os" in sys.modules
    restore_modules(hidden)
    assert sys.modules[late_module] is module


def test_the_module_itself_is_not_hidden(tmp_path, late_module):
    importlib.import_module(late_module)

    assert hide_shadowed(str(tmp_path)) == {}


class FakeSession:
    """Only what closing a report needs."""

    def __init__(self, report, last_step):
        self.last_step = last_step
        self._report = report

    def finish(self):
        return self._report


FOUND = Report(issues=(rule().issue("x"),), exit_code=1)


@pytest.mark.parametrize(
    ("status", "report", "last_step", "code"),
    [
        (0, Report(), 5, 0),
        (0, Report(), -1, 4),
        (0, FOUND, 5, 1),
        (0, FOUND, -1, 1),
        (3, FOUND, 5, 3),
        (3, Report(), -1, 3),
        (130, FOUND, 5, 130),
        (-1, Report(), 5, 255),
        (256, FOUND, 5, 1),  # the operating system sees 0
    ],
)
def test_exit_code_prefers_the_programs_own(status, report, last_step, code):
    closed = close_report(FakeSession(report, last_step), Outcome(status=status))

    assert closed.exit_code == code


@pytest.mark.parametrize("name", ["missing.py", ".", "missing/script.py"])
def test_what_is_no_script_is_told(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InputError, match=r"script"):
        find_script(name)


def test_a_missing_module_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    with pytest.raises(InputError, match="no module named 'no_such_package'"):
        find_module("no_such_package.train")
