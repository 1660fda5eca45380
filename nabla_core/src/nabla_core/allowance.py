"""Accept an issue on purpose: ``with nabla.allow("NUM101", reason="…")``; the reason is shown."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    from .issue import Issue
    from .registry import Registry

__all__ = ["allow", "reason_to_allow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allowance:
    selectors: tuple[str, ...]
    reason: str


_ALLOWED: contextvars.ContextVar[tuple[_Allowance, ...]] = contextvars.ContextVar(
    "nabla_allowed", default=()
)


@contextmanager
def allow(*selectors: str, reason: str) -> Iterator[None]:
    """Accept the issues of some rules inside a ``with`` block.

    Args:
        *selectors: rule IDs, prefixes, names or aliases.
        reason: why; shown in the report next to what was allowed.

    Raises:
        UsageError: no selector, an empty reason, or a selector that matches no rule.
    """
    from .host import default_host

    if not selectors:
        raise UsageError(
            'nabla.allow() needs at least one rule, e.g. nabla.allow("NUM101", reason="…")'
        )
    if not reason.strip():
        raise UsageError("nabla.allow() needs a reason; it is shown next to what was allowed")
    registry = default_host().registry
    for selector in selectors:
        if not registry.is_reserved(selector):
            registry.match(selector, "nabla.allow()")
    token = _ALLOWED.set((*_ALLOWED.get(), _Allowance(selectors=selectors, reason=reason.strip())))
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def reason_to_allow(issue: Issue, registry: Registry | None = None) -> tuple[str, str] | None:
    """Return the reason and its source when ``issue`` is allowed in this context, else ``None``.

    Args:
        issue: what was found.
        registry: rules by which selectors are understood; by default those of this process.
    """
    from .host import default_host

    for allowance in reversed(_ALLOWED.get()):
        known = registry or default_host().registry
        if any(known.means(selector, issue.rule) for selector in allowance.selectors):
            return allowance.reason, "nabla.allow"
    return None
