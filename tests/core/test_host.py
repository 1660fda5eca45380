import textwrap

import pytest

from nabla_core.discovery import FoundPlugin
from nabla_core.host import PluginHost
from nabla_core.testing import fake_session

GOOD_RULE = """
RULE = Rule(id="GOO101", name="good-rule", summary="s", rationale="r", fix="f", limits="l",
            severity=Severity.LOW, since="0.1")

@hookimpl
def nabla_rules():
    return [RULE]
"""

BROKEN = {
    "import error": ("NAB001", "import nothing_like_this", "ModuleNotFoundError"),
    "exit at import": ("NAB001", "raise SystemExit(3)", "SystemExit"),
    "misspelt argument": (
        "NAB002",
        "@hookimpl\ndef nabla_detectors(sesion):\n    return []",
        "sesion",
    ),
    "unknown hook": ("NAB002", "@hookimpl\ndef nabla_rulez():\n    return []", "nabla_rulez"),
    "malformed id": (
        "NAB003",
        'R = Rule(id="X1", name="n", summary="s", rationale="r", fix="f", limits="l",\n'
        '         severity=Severity.LOW, since="0.1")',
        "X1",
    ),
    "duplicate id": (
        "NAB003",
        "from good import RULE\n@hookimpl\ndef nabla_rules():\n    return [RULE]",
        "GOO",
    ),
    "stolen prefix": (
        "NAB003",
        'R = Rule(id="NUM101", name="n", summary="s", rationale="r", fix="f", limits="l",\n'
        '         severity=Severity.LOW, since="0.1")\n'
        "@hookimpl\ndef nabla_rules():\n    return [R]",
        "belongs to plugin 'guard'",
    ),
    "hook raises": ("NAB004", "@hookimpl\ndef nabla_rules():\n    raise KeyError('x')", "KeyError"),
    "not a rule": ("NAB002", "@hookimpl\ndef nabla_rules():\n    return ['x']", "expected Rule"),
    "options instance": ("NAB002", "@hookimpl\ndef nabla_options():\n    return 3", "dataclass"),
    "wrapper": (
        "NAB002",
        "@hookimpl(wrapper=True)\ndef nabla_rules():\n    return (yield)",
        "wrapper",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_named_rolled_back_and_not_fatal(write_plugin, kind):
    rule, source, reason = BROKEN[kind]
    good = write_plugin("good", GOOD_RULE)
    extra = textwrap.dedent(
        """
        from nabla_core import Command

        @hookimpl
        def nabla_commands():
            return [Command(name="leftover", target="x:y")]
        """
    )
    host = PluginHost([good, write_plugin("broken", extra + source)])

    assert [problem.rule for problem in host.problems] == [rule]
    problem = host.problems[0]
    assert "broken (broken-dist" in problem.plugin
    assert reason in problem.message or reason in problem.hint
    assert problem.hint
    assert [loaded.found.name for loaded in host.plugins] == ["core", "good"]
    assert host.registry.get("GOO101") is not None
    assert "leftover" not in host.commands


def test_a_misspelt_hook_is_answered_with_the_nearest(write_plugin):
    plugin = write_plugin("broken", "@hookimpl\ndef nabla_rulez():\n    return []")
    assert PluginHost([plugin]).problems[0].hint == "did you mean nabla_rules?"


def test_a_plugin_for_another_core_is_not_loaded(write_plugin):
    plugin = write_plugin("old", GOOD_RULE, requires=("nabla-core>=7,<8", "torch"))
    host = PluginHost([plugin])
    assert [problem.rule for problem in host.problems] == ["NAB005"]
    assert host.registry.get("GOO101") is None


def test_a_plugin_within_the_range_is_loaded(write_plugin):
    host = PluginHost([write_plugin("fine", GOOD_RULE, requires=("nabla-core>=0.1,<1",))])
    assert host.problems == []


def test_heavy_imports_are_reported_but_not_fatal(write_plugin, monkeypatch):
    import sys

    monkeypatch.delitem(sys.modules, "jinja2", raising=False)
    host = PluginHost([write_plugin("heavy", "import jinja2\n" + GOOD_RULE)])
    assert [problem.rule for problem in host.problems] == ["NAB007"]
    assert "jinja2" in host.problems[0].message
    assert host.registry.get("GOO101") is not None


def test_two_plugins_of_one_name_keep_the_first(write_plugin):
    first = write_plugin("good", GOOD_RULE)
    twin = FoundPlugin(name="good", module="good", distribution="twin-dist")
    host = PluginHost([first, twin])
    assert [problem.rule for problem in host.problems] == ["NAB003"]
    assert host.registry.owner_of("GOO101") == "good"


def test_a_stranger_cannot_take_the_name_of_a_plugin_of_the_project(write_plugin):
    write_plugin("stranger", GOOD_RULE)
    found = FoundPlugin(name="guard", module="stranger", distribution="evil")
    assert [problem.rule for problem in PluginHost([found]).problems] == ["NAB003"]


def test_a_command_that_exists_is_not_replaced(write_plugin):
    source = """
    from nabla_core import Command

    @hookimpl
    def nabla_commands():
        return [Command(name="rules", target="evil:command")]
    """
    host = PluginHost([write_plugin("thief", source)])
    assert [problem.rule for problem in host.problems] == ["NAB003"]
    assert host.commands["rules"].target.startswith("nabla_core")


def test_blocked_and_third_party_plugins_are_left_out(write_plugin):
    plugin = write_plugin("good", GOOD_RULE)
    assert len(PluginHost([plugin], blocked=["good"]).plugins) == 1
    assert len(PluginHost([plugin], third_party=False).plugins) == 1


def test_one_hook_that_raises_does_not_silence_the_others(write_plugin):
    raising = write_plugin(
        "raising", "@hookimpl\ndef nabla_explain(issues):\n    raise OSError('x')"
    )
    source = """
    from nabla_core.report import Cause

    @hookimpl
    def nabla_explain(session, issues):
        return [Cause(rule="CAU101", chain=(), score=1.0, statement="found")]
    """
    session = fake_session(PluginHost([raising, write_plugin("giving", source)]))
    report = session.finish()

    assert [cause.statement for cause in report.causes] == ["found"]
    assert [problem.rule for problem in report.problems] == ["NAB004"]
    assert "OSError" in report.problems[0].message
