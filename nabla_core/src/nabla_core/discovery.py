"""Finding plugins without importing them."""

from __future__ import annotations

from dataclasses import dataclass

from .entry_points import entry_points

__all__ = ["FIRST_PARTY", "GROUP", "FoundPlugin", "find_plugins"]

GROUP = "nabla"
"""Entry-point group: name of the plugin → module with its hook implementations."""

FIRST_PARTY = (
    "audit",
    "guard",
    "check",
    "trace",
    "replay",
    "diagnose",
    "contracts",
    "precision",
    "causal",
    "report",
    "hf",
    "lightning",
    "keras",
    "trackers",
    "bench",
)
"""Plugins of the nabla project in the order in which they are loaded and their detectors judge:
exact facts before numbers, numbers before statistics. The plugin ``x`` comes from ``nabla-x``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlugin:
    """A plugin that is installed; nothing of it has been imported.

    Attributes:
        name: name of its entry point.
        module: module with the hook implementations.
        distribution: name of the distribution that brings it.
        version: version of that distribution.
        requires: requirement strings of that distribution.
    """

    name: str
    module: str
    distribution: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()

    @property
    def first_party(self) -> bool:
        """Whether it belongs to the nabla project."""
        return self.name in FIRST_PARTY and self.distribution == f"nabla-{self.name}"

    @property
    def label(self) -> str:
        """Name with distribution and version, for messages."""
        return (
            f"{self.name} ({self.distribution} {self.version})" if self.distribution else self.name
        )


def find_plugins() -> tuple[FoundPlugin, ...]:
    """Return the installed plugins: those of the project first, then by name.

    A distribution that is found twice on ``sys.path`` counts once.
    """
    found = [
        FoundPlugin(
            name=point.name,
            module=point.value,
            distribution=point.distribution,
            version=point.version,
            requires=point.requires,
        )
        for point in entry_points(GROUP)
    ]
    return tuple(sorted(found, key=_order))


def _order(plugin: FoundPlugin) -> tuple[int, str, str]:
    rank = FIRST_PARTY.index(plugin.name) if plugin.first_party else len(FIRST_PARTY)
    return rank, plugin.name, plugin.distribution
