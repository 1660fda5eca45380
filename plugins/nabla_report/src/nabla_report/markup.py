"""HTML by construction: text is escaped unless it was built here."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from nabla_core.reporters.style import printable

__all__ = ["Html", "join", "raw", "tag", "text"]

_VOID = frozenset({"meta", "input", "img", "br", "col", "rect", "circle", "line", "path", "image"})

Attribute = str | int | float | bool | None


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def raw(markup: str) -> Html:
    """Call ``markup`` HTML; for constants of this package only."""
    return Html(markup)


def text(content: str) -> Html:
    """Return ``content`` as HTML that shows it and does nothing else."""
    if isinstance(content, Html):
        return content
    return Html(escape(printable(content).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")))


def join(parts: Iterable[str], between: str = "") -> Html:
    """Return the parts one after the other."""
    return Html(text(between).join(map(text, parts)))


def tag(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return an element.

    Args:
        name: of the element.
        *children: HTML, or text, which is escaped.
        **attributes: ``class_`` means ``class`` and ``aria_label`` means ``aria-label``; ``True``
            stands for an attribute without a value, ``None`` and ``False`` for its absence.
    """
    head = f"<{name}{''.join(map(_attribute, attributes, attributes.values()))}>"
    if name in _VOID and not children:
        return Html(head if name not in _SHAPES else f"{head[:-1]}/>")
    return Html(f"{head}{''.join(map(text, children))}</{name}>")


_SHAPES = frozenset({"rect", "circle", "line", "path", "image"})


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    spelled = name.rstrip("_").replace("_", "-")
    return f" {spelled}" if value is True else f' {spelled}="{text(str(value))}"'
