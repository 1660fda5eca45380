"""The plugin host: loads plugins one by one, takes back the broken ones whole, and calls hooks.

pluggy validates the hooks; calling goes implementation by implementation, so that one that raises
does not silence the others. Nothing here runs in a training step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from . import hookspecs, rules
from .declarations import Adapter, Command, Reader, Reporter, RunList, Sink
from .discovery import FoundPlugin, find_plugins
from .errors import PluginError
from .hook_manager import HookManager
from .issue import Issue
from .loading import CORE, Declared, LoadedPlugin, load_plugin
from .problem import Problem
from .registry import Registry

if TYPE_CHECKING:
    import pluggy

    from .session import Session

__all__ = ["PluginHost", "default_host", "use_host"]

_PROCESS: list[PluginHost] = []


class PluginHost:
    """Loaded plugins with everything they declare.

    Args:
        found: plugins to load; by default all that are installed.
        blocked: names of plugins not to load.
        third_party: whether to load plugins from outside the nabla project.
    """

    def __init__(
        self,
        found: Sequence[FoundPlugin] | None = None,
        *,
        blocked: Iterable[str] = (),
        third_party: bool = True,
    ) -> None:
        self.registry = Registry()
        self.problems: list[Problem] = []
        self.plugins: list[LoadedPlugin] = []
        self.blocked = frozenset(blocked)
        self.declared = Declared()
        self._manager = HookManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._load(CORE)
        for plugin in find_plugins() if found is None else found:
            if plugin.name not in self.blocked and (third_party or plugin.first_party):
                self._load(plugin)

    @property
    def commands(self) -> dict[str, Command]:
        """Commands by name."""
        return {command.name: command for command in self.declared.commands}

    @property
    def reporters(self) -> dict[str, Reporter]:
        """Report formats by name."""
        return {reporter.name: reporter for reporter in self.declared.reporters}

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Log readers."""
        return tuple(self.declared.readers)

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """Framework adapters."""
        return tuple(self.declared.adapters)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Trackers."""
        return tuple(self.declared.sinks)

    @property
    def run_lists(self) -> tuple[RunList, ...]:
        """Stores of runs."""
        return tuple(self.declared.run_lists)

    @property
    def options(self) -> dict[str, type]:
        """Options dataclasses by the name of their table."""
        return dict(self.declared.options)

    def hooks_of(self, plugin: str) -> tuple[str, ...]:
        """Return the names of the hooks that a plugin implements."""
        for loaded in self.plugins:
            if loaded.found.name == plugin:
                return loaded.hooks
        return ()

    def call(self, session: Session | None, hook: str, /, **arguments: object) -> list[object]:
        """Call every implementation of ``hook`` in load order; report those that raise (NAB004).

        Returns:
            The results that are not ``None``.
        """
        results: list[object] = []
        for plugin, impl in self._implementations(hook):
            try:
                result = impl.function(*(arguments[name] for name in impl.argnames))
                if result is not None:
                    results.append(result)
            except Exception as error:
                problem = Problem(
                    rule=rules.HOOK_RAISED.id,
                    plugin=plugin.found.label,
                    message=f"{hook} raised {type(error).__name__}: {error}",
                    hint=rules.HOOK_RAISED.fix,
                )
                if session is None:
                    self.problems.append(problem)
                else:
                    session.problem(problem)
        return results

    def collect(self, session: Session | None, hook: str, /, **arguments: object) -> list[object]:
        """Like :meth:`call`, for hooks that return iterables; the items come in one list."""
        items: list[object] = []
        for result in self.call(session, hook, **arguments):
            if not isinstance(result, Iterable):
                raise PluginError(
                    rules.BAD_HOOK.id, f"{hook} returned {type(result).__name__}, not a list", ""
                )
            items.extend(result)
        return items

    def with_owner(self, issue: Issue) -> Issue:
        """Return ``issue`` with the name of the plugin that owns its rule."""
        return replace(issue, plugin=self.registry.owner_of(issue.rule))

    def rewrite(self, session: Session, issue: Issue) -> Issue:
        """Let plugins observe or rewrite a new issue."""
        for result in self.call(session, "nabla_issue", session=session, issue=issue):
            if isinstance(result, Issue):
                issue = result
        return issue

    def _load(self, plugin: FoundPlugin) -> None:
        twin = next((known for known in self.plugins if known.found.name == plugin.name), None)
        if twin is not None:
            self._reject(
                plugin,
                PluginError(
                    rules.ID_COLLISION.id,
                    f"a plugin called {plugin.name!r} is already loaded: {twin.found.label}",
                    "uninstall one of the two",
                ),
            )
            return
        try:
            loaded, declared, warnings = load_plugin(plugin, self._manager, self.registry)
            self._merge(declared)
        except PluginError as error:
            self.registry.remove_plugin(plugin.name)
            if self._manager.has_plugin(plugin.name):
                self._manager.unregister(name=plugin.name)
            self._reject(plugin, error)
            return
        self.plugins.append(loaded)
        self.problems.extend(warnings)

    def _reject(self, plugin: FoundPlugin, error: PluginError) -> None:
        self.problems.append(
            Problem(rule=error.rule_id, plugin=plugin.label, message=str(error), hint=error.hint)
        )

    def _merge(self, declared: Declared) -> None:
        for kind, mine, theirs in (
            ("command", self.commands, declared.commands),
            ("format", self.reporters, declared.reporters),
            ("options table", self.options, [table for table, _ in declared.options]),
        ):
            names = [item if isinstance(item, str) else item.name for item in theirs]
            for name in names:
                if name in mine:
                    raise PluginError(
                        rules.ID_COLLISION.id,
                        f"{kind} {name!r} already belongs to another plugin",
                        rules.ID_COLLISION.fix,
                    )
        self.declared.extend(declared)

    def _implementations(self, hook: str) -> list[tuple[LoadedPlugin, pluggy.HookImpl]]:
        order = {loaded.found.name: index for index, loaded in enumerate(self.plugins)}
        caller = getattr(self._manager.hook, hook)
        impls = [impl for impl in caller.get_hookimpls() if impl.plugin_name in order]
        impls.sort(key=lambda impl: order[impl.plugin_name])
        return [(self.plugins[order[impl.plugin_name]], impl) for impl in impls]


def default_host() -> PluginHost:
    """Return the plugins of this process, loaded once. ``NABLA_DISABLE_PLUGINS=1`` leaves out those
    from outside the nabla project."""
    if not _PROCESS:
        _PROCESS.append(
            PluginHost(third_party=os.environ.get("NABLA_DISABLE_PLUGINS", "") in ("", "0"))
        )
    return _PROCESS[0]


def use_host(host: PluginHost) -> None:
    """Make ``host`` the plugins of this process; the command line does so after its options."""
    _PROCESS[:] = [host]
