"""The text of a minimal rule package; ``examples/acme_rules`` is this template filled in."""

from __future__ import annotations

from string import Template

__all__ = ["files_for"]

_PYPROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "$name"
version = "0.1.0"
dependencies = ["nabla-core>=0.1,<1"]
[project.entry-points.nabla]
$module = "$module"
[tool.hatch.build.targets.wheel]
only-include = ["$module.py"]
""")

_MODULE = Template("""\
from nabla_core import Rule, Severity, hookimpl

CEILING = Rule(
    id="${prefix}101", name="$name-loss-ceiling", severity=Severity.MEDIUM, since="0.1",
    summary="The loss is above the ceiling.", rationale="Such a run never recovers.",
    fix="Lower the learning rate.", limits="Silent without a loss.", needs=("loss",))

class LossCeiling:
    rules = (CEILING,)
    def step(self, record):
        loss = record.signals.get("loss", 0.0)
        if loss > 10.0:
            yield CEILING.issue(f"Loss is {loss:.3g}, limit 10.", step=record.step, loss=loss)

@hookimpl
def nabla_rules(): return [CEILING]
@hookimpl
def nabla_detectors(session): return [LossCeiling()]
""")

_TEST = Template("""\
from nabla_core.testing import check_rule, records

from $module import LossCeiling


def test_reports_a_loss_above_the_ceiling_only():
    check_rule(
        LossCeiling(),
        bad=records(loss=[1.0, 10.1]),
        good=records(loss=[1.0, 9.9]),
        rule="${prefix}101",
    )
""")


def files_for(name: str, prefix: str) -> dict[str, str]:
    """Return relative path → text of the package ``name`` with rule IDs ``<prefix>101``."""
    words = {"name": name, "module": name.replace("-", "_"), "prefix": prefix}
    return {
        "pyproject.toml": _PYPROJECT.substitute(words),
        f"{words['module']}.py": _MODULE.substitute(words),
        f"test_{words['module']}.py": _TEST.substitute(words),
    }
