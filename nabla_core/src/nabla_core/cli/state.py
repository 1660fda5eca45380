"""What the options before the command decide: plugins, configuration, verbosity, colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import click

from ..errors import UsageError
from ..host import PluginHost, use_host

if TYPE_CHECKING:
    from ..config import Config
    from ..problem import Problem
    from ..reporters.style import Style

__all__ = ["ShellState"]

ColorChoice = Literal["auto", "always", "never"]

_MOST_COLUMNS, _LEAST_COLUMNS = 100, 40


@dataclass(kw_only=True)
class ShellState:
    """Options of the shell, shared by all commands through ``click.Context.obj``.

    Attributes:
        block: values of ``-p``, e.g. ``"no:acme"``.
        third_party: whether plugins from outside the project are loaded.
        strict_plugins: whether a plugin problem makes the exit code 5.
        config_path: configuration file given by the user.
        use_config: whether a configuration file is read at all.
        verbose: how often ``-v`` was given; -1 for ``-q``.
        color: when to use colours.
    """

    block: tuple[str, ...] = ()
    third_party: bool = True
    strict_plugins: bool = False
    config_path: Path | None = None
    use_config: bool = True
    verbose: int = 0
    color: ColorChoice = "auto"
    shown: list[Problem] = field(default_factory=list)

    @cached_property
    def host(self) -> PluginHost:
        """The loaded plugins; their problems go to stderr once."""
        names = []
        for text in self.block:
            verb, _, name = text.partition(":")
            if verb != "no" or not name:
                raise UsageError(f"-p {text}: write it as -p no:NAME to block a plugin")
            names.append(name)
        disabled = os.environ.get("NABLA_DISABLE_PLUGINS", "") not in ("", "0")
        host = PluginHost(blocked=names, third_party=self.third_party and not disabled)
        use_host(host)
        self.show_problems(host.problems)
        return host

    def config(
        self, options: Iterable[str] = (), named: Mapping[str, object] | None = None
    ) -> Config:
        """Return the effective configuration.

        Args:
            options: values of ``-o``, e.g. ``"guard.every=10"``.
            named: settings of the core given by options of their own.

        Raises:
            ConfigError: any setting is wrong.
        """
        from ..config import Config
        from ..layers import environment_layer, file_layer, find_file, option_layer

        layers = []
        if self.use_config:
            path = self.config_path or find_file(Path.cwd())
            layers += [file_layer(path)] if path else []
        layers.append(environment_layer(os.environ, self.host.options))
        layers.append(option_layer(options, named or {}))
        config = Config(self.host, layers)
        self.show_problems(config.problems)
        return config

    def show_problems(self, problems: Iterable[Problem]) -> None:
        """Print problems that were not shown yet to stderr."""
        for problem in problems:
            if problem in self.shown:
                continue
            self.shown.append(problem)
            rule = self._name_of(problem.rule)
            click.echo(
                f"nabla: {problem.rule}{rule}: {problem.plugin}: {problem.message}", err=True
            )
            if problem.hint:
                click.echo(f"       {problem.hint}", err=True)

    def plugin_exit_code(self, code: int) -> int:
        """Return 5 when plugins are strict and one has a problem, else ``code``."""
        return 5 if self.strict_plugins and self.shown and code in (0, 4) else code

    def style(self, stream: TextIO | None = None) -> Style:
        """Return the look of text written to ``stream`` (default: stdout)."""
        from ..reporters.style import Style

        stream = stream or sys.stdout
        return Style(
            color=self.use_color(stream), verbose=max(self.verbose, 0), width=_columns(stream)
        )

    def use_color(self, stream: TextIO) -> bool:
        """Whether ``stream`` gets colours: ``--color``, NO_COLOR, FORCE_COLOR, a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()

    @staticmethod
    def _name_of(rule_id: str) -> str:
        from ..rules import RULES

        return next((f" {rule.name}" for rule in RULES if rule.id == rule_id), "")


def _columns(stream: TextIO) -> int:
    """Return how wide text may be: a narrow terminal would break its lines within words."""
    if stream.closed or not stream.isatty():
        return _MOST_COLUMNS
    from shutil import get_terminal_size  # only a terminal pays for it

    return min(_MOST_COLUMNS, max(_LEAST_COLUMNS, get_terminal_size((_MOST_COLUMNS, 24)).columns))
