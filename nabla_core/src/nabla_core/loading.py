"""Loading one plugin: import it, validate its hooks, collect what it declares. All or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import TypeVar

import pluggy

from . import __version__, hookspecs, rules
from .declarations import Adapter, Command, Reader, Reporter, RunList, Sink
from .discovery import FIRST_PARTY, FoundPlugin
from .errors import PluginError, RuleCollisionError, RuleDefinitionError
from .nearest import nearest
from .problem import Problem
from .registry import Registry
from .rule import Rule

__all__ = ["CORE", "Declared", "LoadedPlugin", "load_plugin"]

T = TypeVar("T")

CORE = FoundPlugin(
    name="core", module="nabla_core.plugin", distribution="nabla-core", version=__version__
)
_HEAVY = ("torch", "numpy", "jinja2")
_IMPORT_BUDGET_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """A plugin in use."""

    found: FoundPlugin
    hooks: tuple[str, ...]
    rule_count: int


@dataclass(slots=True, kw_only=True)
class Declared:
    """Everything that plugins declare as data."""

    options: list[tuple[str, type]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    reporters: list[Reporter] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    run_lists: list[RunList] = field(default_factory=list)

    def extend(self, other: Declared) -> None:
        """Take in what another plugin declares."""
        for kind in fields(self):
            getattr(self, kind.name).extend(getattr(other, kind.name))


def load_plugin(
    plugin: FoundPlugin, manager: pluggy.PluginManager, registry: Registry
) -> tuple[LoadedPlugin, Declared, list[Problem]]:
    """Import, validate and collect one plugin.

    Returns:
        The plugin, what it declares, and warnings (NAB007).

    Raises:
        PluginError: it cannot be used; the caller takes back what was registered.
    """
    _check_identity(plugin)
    _check_core_version(plugin)
    module, warnings = _import(plugin)
    hooks = _hook_names(module, manager)
    _register(plugin, module, manager)
    collected = _rules(hooks, module)
    for rule in collected:
        try:
            registry.add(rule, plugin.name)
        except RuleCollisionError as error:
            raise PluginError(rules.ID_COLLISION.id, str(error), rules.ID_COLLISION.fix) from error
    declared = _declared(plugin, hooks, module)
    loaded = LoadedPlugin(found=plugin, hooks=hooks, rule_count=len(collected))
    return loaded, declared, warnings


def _check_identity(plugin: FoundPlugin) -> None:
    if plugin.name in FIRST_PARTY and not plugin.first_party:
        raise PluginError(
            rules.ID_COLLISION.id,
            f"the name {plugin.name!r} belongs to nabla-{plugin.name}",
            "give the entry point another name",
        )


def _check_core_version(plugin: FoundPlugin) -> None:
    for text in plugin.requires:
        if not text.lower().replace("_", "-").startswith("nabla-core"):
            continue
        if plugin.first_party and text.replace(" ", "").endswith(f"=={__version__}"):
            return  # the usual case, decided without importing packaging
        from packaging.requirements import Requirement

        wanted = Requirement(text)
        if wanted.name == "nabla-core" and not wanted.specifier.contains(
            __version__, prereleases=True
        ):
            raise PluginError(
                rules.CORE_VERSION.id,
                f"needs nabla-core{wanted.specifier}, installed is {__version__}",
                rules.CORE_VERSION.fix,
            )


def _import(plugin: FoundPlugin) -> tuple[ModuleType, list[Problem]]:
    before, started_s = set(sys.modules), time.process_time()
    try:
        module = import_module(plugin.module)
    except (RuleDefinitionError, RuleCollisionError) as error:
        raise PluginError(rules.ID_COLLISION.id, str(error), rules.ID_COLLISION.fix) from error
    except (Exception, SystemExit) as error:
        raise PluginError(
            rules.PLUGIN_IMPORT_FAILED.id,
            f"importing {plugin.module} raised {type(error).__name__}: {error}",
            rules.PLUGIN_IMPORT_FAILED.fix,
        ) from error
    elapsed_s = time.process_time() - started_s
    heavy = [name for name in _HEAVY if name in sys.modules and name not in before]
    if not heavy and elapsed_s <= _IMPORT_BUDGET_S:
        return module, []
    reason = f"imported {', '.join(heavy)}" if heavy else f"took {elapsed_s:.2f} s of CPU time"
    slow = rules.SLOW_PLUGIN_IMPORT
    message = (
        f"loading {plugin.module} {reason}; the budget is {_IMPORT_BUDGET_S} s and none of these"
    )
    return module, [Problem(rule=slow.id, plugin=plugin.label, message=message, hint=slow.fix)]


def _hook_names(module: ModuleType, manager: pluggy.PluginManager) -> tuple[str, ...]:
    known = [name for name in dir(hookspecs) if name.startswith("nabla_")]
    marked = []
    for name in dir(module):
        options = manager.parse_hookimpl_opts(module, name)
        if not options:
            continue
        if name not in known:
            close = nearest(name, known, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"known hooks: {', '.join(known)}"
            raise PluginError(rules.BAD_HOOK.id, f"unknown hook {name}", hint)
        if options["wrapper"] or options["hookwrapper"]:
            raise PluginError(
                rules.BAD_HOOK.id, f"{name} is a wrapper; nabla has none", "make it a plain hook"
            )
        marked.append(name)
    return tuple(marked)


def _register(plugin: FoundPlugin, module: ModuleType, manager: pluggy.PluginManager) -> None:
    try:
        manager.register(module, plugin.name)
    except (pluggy.PluginValidationError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise PluginError(rules.BAD_HOOK.id, "; ".join(lines), rules.BAD_HOOK.fix) from error


def _rules(hooks: tuple[str, ...], module: ModuleType) -> tuple[Rule, ...]:
    found = _items(hooks, module, "nabla_rules", Rule)
    return tuple(found)


def _declared(plugin: FoundPlugin, hooks: tuple[str, ...], module: ModuleType) -> Declared:
    declared = Declared(
        commands=_items(hooks, module, "nabla_commands", Command),
        reporters=_items(hooks, module, "nabla_reporters", Reporter),
        readers=_items(hooks, module, "nabla_readers", Reader),
        adapters=_items(hooks, module, "nabla_adapters", Adapter),
        sinks=_items(hooks, module, "nabla_sinks", Sink),
        run_lists=_items(hooks, module, "nabla_run_lists", RunList),
    )
    if "nabla_options" in hooks:
        answer = _ask(module, "nabla_options")
        table, cls = answer if isinstance(answer, tuple) else (plugin.name, answer)
        if not (isinstance(cls, type) and is_dataclass(cls)):
            raise PluginError(
                rules.BAD_HOOK.id,
                f"nabla_options returned {cls!r}, not a dataclass",
                "return the class itself, not an instance",
            )
        declared.options.append((table, cls))
    return declared


def _items(hooks: tuple[str, ...], module: ModuleType, hook: str, kind: type[T]) -> list[T]:
    if hook not in hooks:
        return []
    answer = _ask(module, hook)
    items: list[T] = []
    for item in answer if isinstance(answer, Iterable) else [answer]:
        if not isinstance(item, kind):
            raise PluginError(
                rules.BAD_HOOK.id,
                f"{hook} returned {type(item).__name__}, expected {kind.__name__}",
                f"return a list of {kind.__name__} objects",
            )
        items.append(item)
    return items


def _ask(module: ModuleType, hook: str) -> object:
    try:
        return getattr(module, hook)()
    except (RuleDefinitionError, RuleCollisionError) as error:
        raise PluginError(rules.ID_COLLISION.id, str(error), rules.ID_COLLISION.fix) from error
    except (Exception, SystemExit) as error:
        raise PluginError(
            rules.HOOK_RAISED.id,
            f"{hook} raised {type(error).__name__}: {error}",
            rules.HOOK_RAISED.fix,
        ) from error
