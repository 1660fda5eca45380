"""``nabla plugins``: what is installed, which hooks it implements, what is wrong with it."""

from __future__ import annotations

import json

import click

from .state import ShellState

__all__ = ["plugins"]


@click.command("plugins")
@click.option("--hook", help="Only plugins that implement this hook.")
@click.option("--problems", is_flag=True, help="Only what is wrong.")
@click.option("--format", "form", type=click.Choice(["console", "json"]), default="console")
@click.pass_obj
def plugins(state: ShellState, hook: str | None, problems: bool, form: str) -> int:
    """List the installed plugins and what is wrong with them."""
    host = state.host
    rows = [
        {
            "name": plugin.found.name,
            "distribution": plugin.found.distribution,
            "version": plugin.found.version,
            "rules": plugin.rule_count,
            "hooks": list(plugin.hooks),
        }
        for plugin in host.plugins
        if not problems and (hook is None or hook in plugin.hooks)
    ]
    wrong = [problem.to_dict() for problem in host.problems]
    if form == "json":
        click.echo(json.dumps({"plugins": rows, "problems": wrong}, indent=2))
        return state.plugin_exit_code(0)
    for row in rows:
        count = f"{row['rules']} rule{'' if row['rules'] == 1 else 's'}"
        hooks = ", ".join(name.removeprefix("nabla_") for name in _names(row["hooks"]))
        click.echo(
            f"{row['name']:<12} {row['distribution']:<18} {row['version']:<8} {count:<9} {hooks}"
        )
    for name in sorted(host.blocked):
        click.echo(f"{name:<12} blocked by -p no:{name}")
    if problems and not wrong:
        click.echo("no plugin has a problem")
    if problems:
        for problem in host.problems:
            click.echo(f"{problem.rule} {problem.plugin}: {problem.message}")
    return state.plugin_exit_code(0)


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
