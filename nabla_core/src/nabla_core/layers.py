"""Reading configuration from files, variables and ``-o`` options, without judging it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigError, InputError
from .files import read_text

__all__ = ["Layer", "environment_layer", "file_layer", "find_file", "option_layer"]

_RESERVED = {"NABLA_DISABLE_PLUGINS"}
_MOST_FILES = 64
_PARSED: dict[Path, tuple[tuple[int, int, int, int], Mapping[str, object]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Settings as written in one place.

    Attributes:
        source: how messages call it: a file name, ``"environment"`` or ``"command line"``.
        style: ``"file"``, ``"env"`` or ``"cli"``; decides how a setting is spelled in messages.
        values: keys of the core and tables of plugins.
        named: keys that came from an option of their own, as ``--select``.
    """

    source: str
    style: str
    values: Mapping[str, object]
    named: frozenset[str] = frozenset()

    def place(self, table: str, key: str = "") -> str:
        """Spell a setting the way the person wrote it."""
        if self.style == "env":
            return (
                "_".join(part for part in ("NABLA", table, key) if part).upper().replace("-", "_")
            )
        if self.style == "cli":
            own = not table and key in self.named
            return f"--{key}" if own else f"-o {'.'.join(part for part in (table, key) if part)}"
        inner = ".".join(part for part in ("tool", "nabla", table) if part)
        if self.source.endswith("nabla.toml"):
            inner = table
        header = f"[{inner}] " if inner else ""
        return f"{self.source}: {header}{key}".rstrip()


def find_file(start: Path) -> Path | None:
    """Return the nearest ``nabla.toml``, or ``pyproject.toml`` with a ``[tool.nabla]`` table, at or
    above ``start``."""
    folder = os.fspath(start)  # plain strings: sessions and single measurements ask anew each time
    while True:
        own = os.path.join(folder, "nabla.toml")
        if _is_file(own):
            return Path(own)
        project = os.path.join(folder, "pyproject.toml")
        if _is_file(project) and _table(Path(project)):
            return Path(project)
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _is_file(path: str) -> bool:
    return os.access(path, os.F_OK) and os.path.isfile(path)  # the first raises nothing inside


def file_layer(path: Path) -> Layer:
    """Read ``nabla.toml`` (keys at the top) or the ``[tool.nabla]`` table of another TOML file.

    Raises:
        ConfigError: it is missing, unreadable or no TOML.
    """
    return Layer(source=path.name, style="file", values=_table(path))


def environment_layer(environment: Mapping[str, str], tables: Iterable[str]) -> Layer:
    """Collect ``NABLA_<KEY>`` and ``NABLA_<TABLE>_<KEY>`` variables."""
    values: dict[str, object] = {}
    names = sorted(tables, key=len, reverse=True)
    ours = sorted(name for name in environment if name.startswith("NABLA_"))
    for name in ours:
        if name in _RESERVED:
            continue
        text = environment[name]
        key = name.removeprefix("NABLA_").lower().replace("_", "-")
        table = next((table for table in names if table and key.startswith(table + "-")), "")
        if table:
            inner = values.setdefault(table, {})
            if isinstance(inner, dict):
                inner[key.removeprefix(table + "-")] = text
        else:
            values[key] = text
    return Layer(source="environment", style="env", values=values)


def option_layer(options: Iterable[str], values: Mapping[str, object]) -> Layer:
    """Collect ``-o table.key=value`` options and the values of named options.

    Raises:
        ConfigError: an option is not of the form ``key=value``.
    """
    merged: dict[str, object] = dict(values)
    for text in options:
        name, equals, value = text.partition("=")
        table, dot, key = name.strip().rpartition(".")
        if not equals or not key:
            raise ConfigError(f"-o {text}: write it as table.key=value, e.g. -o guard.every=10")
        if not dot:
            merged[key] = value.strip()
            continue
        inner = merged.setdefault(table, {})
        if isinstance(inner, dict):
            inner[key] = value.strip()
    return Layer(source="command line", style="cli", values=merged, named=frozenset(values))


def _table(path: Path) -> Mapping[str, object]:
    """The settings in a file; parsed anew only when the file has changed, for each session asks."""
    try:
        found = path.stat()
    except OSError:
        return _parse(path)  # says what is wrong
    key = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
    known = _PARSED.get(path)
    if known is None or known[0] != key:
        if len(_PARSED) >= _MOST_FILES:
            _PARSED.clear()
        known = _PARSED[path] = (key, _parse(path))
    return known[1]


def _parse(path: Path) -> Mapping[str, object]:
    try:
        content = tomllib.loads(read_text(path))
    except InputError as error:
        raise ConfigError(str(error)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from error
    if path.name == "nabla.toml":
        return content
    tool = content.get("tool", {})
    table = tool.get("nabla", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [tool.nabla] must be a table")
    return table
