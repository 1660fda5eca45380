"""Commands of the core, declared as data: nothing is imported to list them."""

from __future__ import annotations

from ..declarations import Command

__all__ = ["COMMANDS"]

COMMANDS = (
    Command(
        name="plugins",
        target="nabla_core.cli.plugins:plugins",
        summary="List the installed plugins and what is wrong with them.",
    ),
    Command(name="rules", target="nabla_core.cli.rules:rules_command", summary="List all rules."),
    Command(
        name="rule",
        target="nabla_core.cli.rules:rule_command",
        summary="Explain a rule: ID, name or a code of another tool.",
    ),
    Command(
        name="config",
        target="nabla_core.cli.config:config_command",
        summary="Show the effective settings and where they come from.",
    ),
    Command(
        name="report",
        target="nabla_core.cli.report:report_command",
        summary="Show a stored report, in any format.",
    ),
    Command(
        name="runs",
        target="nabla_core.cli.runs:runs",
        summary="Show the runs that were judged or captured here.",
    ),
    Command(
        name="plugin",
        target="nabla_core.cli.new:plugin_group",
        summary="Start a new plugin.",
    ),
)
