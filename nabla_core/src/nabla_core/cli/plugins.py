"""``nabla plugins``: what is installed, which hooks it implements, what is wrong with it."""

from __future__ import annotations

import json

import click

from .. import hookspecs
from ..binder import closest
from ..errors import UsageError
from ..reporters.style import counted
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
    wanted = None if hook is None else _known_hook(hook)
    rows = [
        {
            "name": plugin.found.name,
            "distribution": plugin.found.distribution,
            "version": plugin.found.version,
            "rules": plugin.rule_count,
            "hooks": list(plugin.hooks),
        }
        for plugin in host.plugins
        if not problems and (wanted is None or wanted in plugin.hooks)
    ]
    wrong = [problem.to_dict() for problem in host.problems]
    if form == "json":
        click.echo(json.dumps({"plugins": rows, "problems": wrong}, indent=2))
        return state.plugin_exit_code(0)
    for row in rows:
        count = counted(int(str(row["rules"])), "rule")
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


def _known_hook(word: str) -> str:
    """Return the full name of a hook, which is listed without its first part."""
    known = sorted(name for name in vars(hookspecs) if name.startswith("nabla_"))
    name = word if word.startswith("nabla_") else f"nabla_{word}"
    if name not in known:
        short = [one.removeprefix("nabla_") for one in known]
        raise UsageError(
            f"--hook {word}: there is no such hook"
            + (closest(name.removeprefix("nabla_"), short) or f"; choose from {', '.join(short)}")
        )
    return name


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
