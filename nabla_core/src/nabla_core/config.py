"""The effective configuration: every value with the place it comes from.

Precedence: command line > ``NABLA_*`` variables > configuration file > default.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from .baseline import Baseline
from .binder import bind_field, closest, closest_key, field_of, key_of, option_fields
from .discovery import FIRST_PARTY
from .errors import ConfigError
from .layers import Layer, environment_layer, file_layer, find_file
from .options import option
from .problem import Problem
from .rules import CONFIG_WITHOUT_PLUGIN
from .selection import Selection, SelectionOptions, Selector
from .severity import Severity

if TYPE_CHECKING:
    from .host import PluginHost
    from .issue import Issue
    from .registry import Registry

__all__ = ["Config", "CoreOptions", "Setting"]

OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOptions:
    """Keys directly under ``[tool.nabla]``."""

    select: tuple[str, ...] = option((), "rules to run instead of all stable ones")
    extend_select: tuple[str, ...] = option((), "rules to run besides the selected ones")
    ignore: tuple[str, ...] = option((), "rules not to run")
    severity: Mapping[str, Severity] = field(default_factory=dict)
    per_module: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preview: bool = option(False, "also run rules that are in preview")
    baseline: str = option("", "file with known issues")
    sinks: tuple[str, ...] = option((), "trackers that get what is found in a watched training")
    fail_on: Severity = option(Severity.HIGH, "severity from which an issue fails the run")
    max_issues: int = option(1_000, "distinct issues kept in a session", minimum=1)
    max_events: int = option(10_000, "events kept in a session", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One effective value.

    Attributes:
        table: ``""`` for the keys of the core, else the plugin's table.
        key: kebab-case key.
        value: the value in force.
        source: where it comes from: a file, a variable, an option or ``"default"``.
    """

    table: str
    key: str
    value: object
    source: str


class Config:
    """Effective options of the core and of every plugin.

    Args:
        host: loaded plugins; their options dataclasses give names, types, ranges and defaults.
        layers: settings as written, the weakest first.

    Raises:
        ConfigError: any key, table, type or range is wrong; all mistakes at once.
    """

    def __init__(self, host: PluginHost, layers: Iterable[Layer] = ()) -> None:
        self._classes: dict[str, type] = {"": CoreOptions, **host.options}
        self._settings = {
            (table, key): Setting(
                table=table, key=key, value=getattr(cls(), key_of_field.name), source="default"
            )
            for table, cls in self._classes.items()
            for key, key_of_field in option_fields(cls).items()
        }
        self.problems: list[Problem] = []
        mistakes: list[str] = []
        for layer in layers:
            self._apply(layer, mistakes)
        self._check(mistakes)
        if mistakes:
            raise ConfigError(*mistakes)
        self.core = self._build(CoreOptions, "")
        self.baseline = (
            Baseline.read(Path(self.core.baseline)) if self.core.baseline else Baseline()
        )

    @classmethod
    def defaults(cls, host: PluginHost) -> Config:
        """Return the plugins' defaults, without reading any file or variable."""
        return cls(host)

    @classmethod
    def discover(cls, host: PluginHost) -> Config:
        """Return what the nearest configuration file and the ``NABLA_*`` variables say.

        Raises:
            ConfigError: any of it is wrong; all mistakes at once.
        """
        path = find_file(Path.cwd())
        layers = [file_layer(path)] if path else []
        return cls(host, [*layers, environment_layer(os.environ, host.options)])

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every effective value with its source, the core first."""
        return tuple(self._settings.values())

    def options(self, cls: type[OptionsT]) -> OptionsT:
        """Return the effective options as an instance of a plugin's dataclass.

        Raises:
            ConfigError: no plugin declares ``cls``.
        """
        for table, known in self._classes.items():
            if known is cls:
                return self._build(cls, table)
        raise ConfigError(f"{cls.__name__} is no options class of a loaded plugin")

    def selection(self, registry: Registry) -> Selection:
        """Return which rules run.

        Raises:
            SelectorError: a selector matches nothing; the message names where it was written.
        """
        core = self.core
        return Selection(
            registry,
            SelectionOptions(
                select=self._selectors("select", core.select),
                extend_select=self._selectors("extend-select", core.extend_select),
                ignore=self._selectors("ignore", core.ignore),
                severity={
                    Selector(text=text, source=self._place("severity")): level
                    for text, level in core.severity.items()
                },
                per_module={
                    glob: self._selectors("per-module", selectors)
                    for glob, selectors in core.per_module.items()
                },
                preview=core.preview,
            ),
        )

    def baseline_reason(self, issue: Issue) -> tuple[str, str] | None:
        """Return the reason and ``"baseline"`` when the baseline accepts ``issue``."""
        entry = self.baseline.entries.get(issue.fingerprint)
        return (entry.reason, "baseline") if entry else None

    def _build(self, cls: type[OptionsT], table: str) -> OptionsT:
        values = {
            found.name: self._settings[table, key_of(found.name)].value
            for found in fields(cast("type", cls))
        }
        return cls(**values)

    def _check(self, mistakes: list[str]) -> None:
        """Let options that check themselves say what is wrong with their values together."""
        for table, cls in self._classes.items():
            try:
                self._build(cls, table)
            except ConfigError as error:
                mistakes.extend(error.mistakes)

    def _selectors(self, key: str, texts: tuple[str, ...]) -> tuple[Selector, ...]:
        return tuple(Selector(text=text, source=self._place(key)) for text in texts)

    def _place(self, key: str) -> str:
        return f"{self._settings['', key].source}: {key}"

    def _apply(self, layer: Layer, mistakes: list[str]) -> None:
        for key, value in layer.values.items():
            if field_of(CoreOptions, key) is not None:
                self._set(layer, "", key, value, mistakes)
            elif isinstance(value, Mapping):
                self._apply_table(layer, key, value, mistakes)
            else:
                hint = closest_key(CoreOptions, key)
                mistakes.append(f"{layer.place('', key)}: unknown key{hint}")

    def _apply_table(
        self, layer: Layer, table: str, values: Mapping[str, object], mistakes: list[str]
    ) -> None:
        if table in self._classes and table:
            for key, value in values.items():
                self._set(layer, table, key, value, mistakes)
            return
        known = sorted({*self._classes, *FIRST_PARTY} - {""})
        hint = "" if table in FIRST_PARTY else closest(table, known)
        if hint:
            mistakes.append(f"{layer.place(table)}: unknown table{hint}")
            return
        rule = CONFIG_WITHOUT_PLUGIN
        message = (
            f"{layer.place(table)}: plugin {table!r} has no options here; the table has no effect"
        )
        self.problems.append(Problem(rule=rule.id, plugin=table, message=message, hint=rule.fix))

    def _set(self, layer: Layer, table: str, key: str, value: object, mistakes: list[str]) -> None:
        cls = self._classes[table]
        found = field_of(cls, key)
        if found is None:
            hint = closest_key(cls, key)
            mistakes.append(f"{layer.place(table, key)}: unknown key{hint}")
            return
        converted, mistake = bind_field(cls, found, value, layer.place(table, key))
        if mistake is not None:
            mistakes.append(mistake)
            return
        key = key_of(found.name)
        self._settings[table, key] = Setting(
            table=table, key=key, value=converted, source=layer.source
        )
