"""What the plugin offers to a session."""

import subprocess
import sys

from nabla_audit.rules import RULES
from nabla_core.session import Session
from nabla_guard.loop.offers import FACTS


def test_every_rule_can_be_decided_from_a_live_loop():
    assert all(set(rule.needs) <= FACTS for rule in RULES)


def test_a_session_over_a_log_file_gets_no_detectors():
    class Log:
        name = "metrics.csv"
        offers = frozenset({"loss"})

    from nabla_audit.plugin import nabla_detectors

    session = Session()
    session.source = Log()
    assert nabla_detectors(session=session) == []


def test_declaring_the_rules_imports_no_torch():
    code = "import sys, nabla_audit.plugin as p; p.nabla_rules(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
