"""pluggy's manager, made quick at what it does most: finding hooks in a module."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pluggy import HookimplOpts

__all__ = ["HookManager"]


class HookManager(pluggy.PluginManager):
    """Looks for hooks among a module's functions; whatever else it holds cannot be one."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> HookimplOpts | None:
        """Return how ``name`` of ``plugin`` is marked as a hook; ``None`` when it is not."""
        if isinstance(plugin, ModuleType) and type(vars(plugin).get(name)) is not FunctionType:
            return None
        return super().parse_hookimpl_opts(plugin, name)
