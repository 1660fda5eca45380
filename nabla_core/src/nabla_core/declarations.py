"""What a plugin declares as data, so that listing it imports nothing."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import PluginError

__all__ = ["Adapter", "Command", "Reader", "Reporter", "RunList", "Sink", "Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that is imported only when it is used.

    Attributes:
        name: how the user calls it.
        target: ``"module:attribute"``.
        summary: one line for listings.
    """

    name: str
    target: str
    summary: str = ""

    def load(self) -> object:
        """Import and return the attribute.

        Raises:
            PluginError: the module cannot be imported or lacks the attribute.
        """
        from importlib import import_module

        module_name, _, attribute = self.target.partition(":")
        try:
            found: object = import_module(module_name)
            for part in filter(None, attribute.split(".")):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise PluginError(
                "NAB001",
                f"{self.name}: cannot load {self.target}: {error}",
                "reinstall the distribution that declares it, or report this to its authors",
            ) from error
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Target):
    """A command of ``nabla``; the target is a :class:`click.Command`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter(Target):
    """A report format; the target is ``render(report, style) -> str``.

    Attributes:
        suffixes: file endings that imply this format, e.g. ``(".json",)``.
        notebook: ``"module:attribute"`` of ``embed(report) -> str``, the HTML that a notebook shows
            for a report; empty where the format has none.
    """

    suffixes: tuple[str, ...] = ()
    notebook: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader(Target):
    """A log reader; the target is ``read(path, options) -> Iterable[StepRecord]``.

    Attributes:
        suffixes: file endings that it usually reads.
        sniff: ``"module:attribute"`` of ``sniff(head: bytes) -> float``, 0 to 1 sure.
    """

    suffixes: tuple[str, ...] = ()
    sniff: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter(Target):
    """A framework adapter, enabled when ``requires`` can be imported."""

    requires: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Target):
    """A tracker of issues; the target is ``open(config) -> Callable[[Issue], None]``.

    ``config.options(cls)`` are the effective options of its plugin. What is returned hears every
    new issue; if it has ``take_report(report)`` too, that is called once, at the end.

    Attributes:
        requires: module that must be installed.
    """

    requires: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList(Target):
    """A store of runs for ``nabla runs``; the target is ``list_runs(request) -> RunTable``.

    The name is the heading under which its runs are shown. The types are in ``nabla_core.runs``.
    """
