import sys
import textwrap

import pytest

from nabla_core import Rule, Severity
from nabla_core.discovery import FoundPlugin


@pytest.fixture
def make_rule():
    def make(rule_id="ACM101", **changes):
        texts = {
            "name": f"rule-{rule_id.lower()}",
            "summary": "Something is wrong.",
            "rationale": "It matters.",
            "fix": "Mend it.",
            "limits": "Silent without facts.",
            "severity": Severity.MEDIUM,
            "since": "0.1",
        }
        return Rule(id=rule_id, **{**texts, **changes})

    return make


@pytest.fixture
def write_plugin(tmp_path, monkeypatch):
    """Write an importable plugin module and return it as found by discovery."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(name, source, **found):
        head = "from nabla_core import Rule, Severity, hookimpl\n"
        (tmp_path / f"{name}.py").write_text(head + textwrap.dedent(source))
        written.append(name)
        return FoundPlugin(name=name, module=name, distribution=f"{name}-dist", **found)

    yield write
    for name in written:
        sys.modules.pop(name, None)


RULE_SOURCE = """
RULE = Rule(id="{id}", name="{name}", summary="s", rationale="r", fix="f", limits="l",
            severity=Severity.MEDIUM, since="0.1", needs=("loss",))

@hookimpl
def nabla_rules():
    return [RULE]
"""


@pytest.fixture
def rule_source():
    def source(rule_id="ACM101", name="acme-rule"):
        return RULE_SOURCE.format(id=rule_id, name=name)

    return source
