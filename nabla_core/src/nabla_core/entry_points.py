"""Reading entry points fast.

``importlib.metadata`` costs four times a bare interpreter to import, which is half of the budget of
``nabla rules``. Folders on ``sys.path`` are therefore read directly; the library reads everything
else: zipped paths, and distributions that a custom finder offers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["EntryPoint", "entry_points"]

_METADATA_FILES = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}
_STANDARD_FINDERS = {"PathFinder", "MetadataPathFinder"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """An entry point and the distribution that declares it.

    Attributes:
        group: name of the group.
        name: name in the group.
        value: ``"module"`` or ``"module:attribute"``.
        distribution: normalised name of the distribution.
        version: its version.
        requires: its requirement strings.
    """

    group: str
    name: str
    value: str
    distribution: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()


def entry_points(group: str, path: Iterable[str] | None = None) -> tuple[EntryPoint, ...]:
    """Return the entry points of one group; of a distribution that is found twice, the first.

    Args:
        group: name of the group.
        path: where to look; by default ``sys.path`` and every finder.
    """
    places = list(sys.path if path is None else path)
    folders = [place or os.curdir for place in places if os.path.isdir(place or os.curdir)]
    others = [place for place in places if place and os.path.isfile(place)]
    found: dict[tuple[str, str], EntryPoint] = {}
    for point in (*_in_folders(group, folders), *_by_library(group, others, path is None)):
        found.setdefault((point.distribution, point.name), point)
    return tuple(found.values())


def _in_folders(group: str, folders: Iterable[str]) -> Iterator[EntryPoint]:
    for folder in folders:
        for name in _listing(folder):
            ending = name[name.rfind(".") :]
            if ending not in _METADATA_FILES:
                continue
            info = os.path.join(folder, name)
            text = _read(os.path.join(info, "entry_points.txt"))
            points = dict(_section(text, group)) if group in text else {}
            if points:
                yield from _described(
                    group, points, _read(os.path.join(info, _METADATA_FILES[ending]))
                )


def _described(group: str, points: dict[str, str], metadata: str) -> Iterator[EntryPoint]:
    headers: dict[str, list[str]] = {}
    for line in metadata.partition("\n\n")[0].splitlines():
        key, colon, value = line.partition(": ")
        if colon:
            headers.setdefault(key.lower(), []).append(value.strip())
    for name, value in points.items():
        yield EntryPoint(
            group=group,
            name=name,
            value=value,
            distribution=_normal(headers.get("name", [""])[0]),
            version=headers.get("version", [""])[0],
            requires=tuple(headers.get("requires-dist", ())),
        )


def _by_library(group: str, places: list[str], finders: bool) -> Iterator[EntryPoint]:
    custom = finders and any(_is_custom(finder) for finder in sys.meta_path)
    if not places and not custom:
        return
    from importlib import metadata

    for distribution in metadata.distributions() if custom else metadata.distributions(path=places):
        for point in distribution.entry_points.select(group=group):
            yield EntryPoint(
                group=group,
                name=point.name,
                value=point.value,
                distribution=_normal(distribution.name),
                version=distribution.version,
                requires=tuple(distribution.requires or ()),
            )


def _is_custom(finder: object) -> bool:
    name = getattr(finder, "__name__", type(finder).__name__)
    return hasattr(finder, "find_distributions") and name not in _STANDARD_FINDERS


def _section(text: str, group: str) -> Iterator[tuple[str, str]]:
    inside = False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def _listing(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # a folder of sys.path that may not be read holds nothing for us


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _normal(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()
