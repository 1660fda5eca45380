"""``nabla rules`` and ``nabla rule KEY``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..binder import closest
from ..errors import SelectorError, UsageError
from ..rule import Rule
from .state import ShellState

if TYPE_CHECKING:
    from ..host import PluginHost

__all__ = ["rule_command", "rules_command"]

_FORMS = click.Choice(["console", "json"])


@click.command("rules")
@click.option("--prefix", default="", help="Only IDs that start with this.")
@click.option("--tag", help="Only rules with this tag.")
@click.option("--plugin", help="Only rules of this plugin.")
@click.option("--format", "form", type=_FORMS, default="console")
@click.option(
    "--write-docs", type=click.Path(path_type=Path), help="Write one page per rule into a folder."
)
@click.pass_obj
def rules_command(
    state: ShellState, /, prefix: str, tag: str | None, plugin: str | None, **rest: object
) -> int:
    """List all rules of the installed plugins."""
    registry = state.host.registry
    _check_filters(state.host, prefix, tag, plugin)
    found = [
        rule
        for rule in registry
        if rule.id.startswith(prefix.upper())
        and (tag is None or tag in rule.tags)
        and (plugin is None or registry.owner_of(rule.id) == plugin)
    ]
    folder = rest["write_docs"]
    if isinstance(folder, Path):
        from ..rule_pages import write_pages

        click.echo(f"{write_pages(found, registry, folder)} pages written to {folder}", err=True)
        return state.plugin_exit_code(0)
    if rest["form"] == "json":
        rows = [{**rule.to_dict(), "plugin": registry.owner_of(rule.id)} for rule in found]
        click.echo(json.dumps(rows, indent=2))
        return state.plugin_exit_code(0)
    for rule in found:
        click.echo(f"{rule.id}  {rule.severity.label:<8}  {rule.name:<32} {rule.summary}")
    return state.plugin_exit_code(0)


def _check_filters(host: PluginHost, prefix: str, tag: str | None, plugin: str | None) -> None:
    """Refuse a word that filters everything out: an empty list would look like an answer."""
    rules = list(host.registry)
    prefixes = sorted({rule.id[:length] for rule in rules for length in range(1, len(rule.id) + 1)})
    for option, word, known in (
        ("prefix", prefix.upper() or None, prefixes),
        ("tag", tag, sorted({tag for rule in rules for tag in rule.tags})),
        ("plugin", plugin, sorted(loaded.found.name for loaded in host.plugins)),
    ):
        if word is not None and word not in known:
            short = [one for one in known if option != "prefix" or len(one) == 3]
            hint = closest(word, known) or f"; choose from {', '.join(short)}"
            raise UsageError(f"--{option} {word}: no rule has it{hint}")


@click.command("rule")
@click.argument("key")
@click.option("--format", "form", type=_FORMS, default="console")
@click.pass_obj
def rule_command(state: ShellState, key: str, form: str) -> int:
    """Explain a rule. KEY is an ID, a name, or a code of another tool (then several may match)."""
    registry = state.host.registry
    found = registry.find(key)
    if not found:
        registry.match(key, "nabla rule")  # raises with the nearest match, unless it is a prefix
        raise SelectorError(
            f"nabla rule: {key!r} is a prefix of several rules; list them with nabla "
            f"rules --prefix {key}"
        )
    if form == "json":
        click.echo(json.dumps([rule.to_dict() for rule in found], indent=2))
        return 0
    style = state.style()
    for number, rule in enumerate(found):
        if number:
            click.echo()
        click.echo(style.paint(f"{rule.id} {rule.name}", "bold"))
        for line in _explain(rule, registry.owner_of(rule.id)):
            click.echo(line)
    return 0


def _explain(rule: Rule, owner: str) -> list[str]:
    from textwrap import fill, indent

    lines = [f"{rule.severity.label} · {rule.stability} · since {rule.since} · plugin {owner}", ""]
    for title, text in (
        ("What", rule.summary),
        ("Why it matters", rule.rationale),
        ("What to do", rule.fix),
        ("When it is silent or wrong", rule.limits),
    ):
        lines += [title, fill(text, 96, initial_indent="  ", subsequent_indent="  "), ""]
    if rule.options:
        lines += ["Options", "  " + ", ".join(rule.options), ""]
    if rule.aliases:
        lines += ["Also known as", "  " + ", ".join(rule.aliases), ""]
    if rule.example is not None:
        for title, code in (("Reported", rule.example.bad), ("Healthy", rule.example.good)):
            lines += [title, indent(code.strip("\n"), "    "), ""]
    return lines[:-1]
